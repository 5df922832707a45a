import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve } from "node:path"
import { describe, expect, it } from "vitest"

const src = resolve(import.meta.dirname, "../../src")

/** Which rooms each room may import from; a room may always import from itself. */
const arrows: Record<string, ReadonlyArray<string>> = {
  domain: [],
  api: ["domain"],
  store: ["domain", "work"],
  config: ["domain", "store"],
  keys: ["domain", "api", "store"],
  events: ["domain", "api", "store"],
  blueprints: ["domain", "api", "store"],
  nodes: ["domain", "api", "store", "work"],
  work: ["domain"],
  servers: ["domain", "api", "store", "work", "keys", "nodes", "blueprints", "events"],
  http: ["domain", "api"],
  pages: ["domain", "api", "store", "nodes", "servers", "events", "http"],
  app: [
    "domain",
    "api",
    "config",
    "store",
    "nodes",
    "blueprints",
    "servers",
    "events",
    "keys",
    "http",
    "pages",
    "daemon"
  ],
  daemon: ["domain", "api", "work"],
  client: ["domain", "api"]
}

const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"))

const roomOf = (file: string) => (file.includes("/") ? file.slice(0, file.indexOf("/")) : "")

const importsOf = (file: string) =>
  [...readFileSync(join(src, file), "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)].map((match) =>
    relative(src, resolve(src, dirname(file), match[1] ?? ""))
  )

/** Rooms that only the composition root may see everything of; the root itself is `main.ts` and `cli`. */
const rooms = [...new Set(files.map(roomOf))].filter((room) => room !== "" && room !== "cli")

describe("design: arrows run one way", () => {
  it("knows every room", () => {
    expect(rooms.toSorted()).toEqual(Object.keys(arrows).toSorted())
  })

  it.each(rooms)("%s imports only what it may", (room) => {
    const offences = files
      .filter((file) => roomOf(file) === room)
      .flatMap((file) =>
        importsOf(file)
          .filter((target) => roomOf(target) !== room && !arrows[room]?.includes(roomOf(target)))
          .map((target) => `${file} -> ${target}`)
      )
    expect(offences).toEqual([])
  })

  it("folders of a room do not import each other in circles", () => {
    const folders = Map.groupBy(files, dirname)
    const targets = new Map(
      [...folders].map(([folder, its]) => [
        folder,
        new Set(its.flatMap((file) => importsOf(file).map(dirname)))
      ])
    )
    /** What a folder imports, and what that imports, and so on. */
    const reached = (folder: string, known = new Set<string>()): ReadonlySet<string> => {
      for (const target of targets.get(folder) ?? []) {
        if (target !== folder && !known.has(target)) reached(target, known.add(target))
      }
      return known
    }
    expect([...folders.keys()].filter((folder) => reached(folder).has(folder))).toEqual([])
  })

  it("only the composition root reads the environment", () => {
    const readers = files.filter(
      (file) =>
        !/^(?:app|cli)\//.test(file) &&
        file !== "main.ts" &&
        readFileSync(join(src, file), "utf8").includes("process.env")
    )
    expect(readers).toEqual([])
  })

  it("nothing throws, waits on bare promises or silences the type checker", () => {
    const forbidden: ReadonlyArray<readonly [RegExp, string]> = [
      [/^\s*throw\s/m, "throw"],
      [/\basync\s+(?:function|\()/, "async function"],
      [/(?<!\.)\bawait\s+[\w(]/, "await"],
      [/@ts-(?:ignore|expect-error|nocheck)/, "@ts-ignore"],
      [/:\s*any\b|<any>|as any\b/, "any"],
      [/\bforkDetach\b/, "forkDetach"]
    ]
    const offences = files.flatMap((file) => {
      const text = readFileSync(join(src, file), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*$|"[^"\n]*"/gm, "")
      return forbidden.filter(([pattern]) => pattern.test(text)).map(([, name]) => `${file}: ${name}`)
    })
    expect(offences).toEqual([])
  })
})
