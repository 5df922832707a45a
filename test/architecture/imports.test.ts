import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve } from "node:path"
import { describe, expect, it } from "vitest"

const src = resolve(import.meta.dirname, "../../src")

/**
 * The modules that each module may import from, besides itself. Folders with several modules are listed by module; all but
 * `shared/work` may import it and `contract/domain`.
 */
const allowedImports: Record<string, ReadonlyArray<string>> = {
  "shared/work": [],
  "contract/domain": [],
  "contract/api": [],
  "contract/nodeApi": ["contract/api"],
  "shared/observability": [],
  "shared/config": [],
  "shared/net": ["shared/observability"],
  "controlPlane/store": ["shared/config", "shared/observability"],
  "controlPlane/http": ["contract/api", "shared/observability"],
  "controlPlane/audit": [
    "contract/api",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http"
  ],
  "controlPlane/keys": [
    "contract/api",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http"
  ],
  "controlPlane/events": [
    "contract/api",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http"
  ],
  "controlPlane/blueprints": [
    "contract/api",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http"
  ],
  "controlPlane/nodes": [
    "contract",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http"
  ],
  "controlPlane/servers": [
    "contract",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/keys",
    "controlPlane/nodes",
    "controlPlane/blueprints",
    "controlPlane/events"
  ],
  "controlPlane/files": [
    "contract",
    "shared/net",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/keys",
    "controlPlane/events",
    "controlPlane/nodes",
    "controlPlane/operations",
    "controlPlane/servers"
  ],
  "controlPlane/operations": [
    "contract",
    "shared/net",
    "shared/observability",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/keys",
    "controlPlane/nodes",
    "controlPlane/events",
    "controlPlane/servers"
  ],
  "controlPlane/backups": [
    "contract",
    "controlPlane/blueprints",
    "shared/net",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/nodes",
    "controlPlane/events",
    "controlPlane/servers",
    "controlPlane/files",
    "controlPlane/operations"
  ],
  "controlPlane/webhooks": [
    "contract/api",
    "shared/net",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/events"
  ],
  "controlPlane/schedules": [
    "contract",
    "controlPlane/blueprints",
    "shared/net",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/backups",
    "controlPlane/operations",
    "controlPlane/keys",
    "controlPlane/servers",
    "controlPlane/webhooks"
  ],
  "controlPlane/sftp": [
    "contract",
    "shared/config",
    "shared/net",
    "controlPlane/store",
    "controlPlane/http",
    "controlPlane/audit",
    "controlPlane/keys",
    "controlPlane/nodes",
    "controlPlane/servers"
  ],
  "controlPlane/pages": ["contract/api", "shared/net", "shared/observability", "controlPlane"],
  daemon: ["contract", "shared/net", "shared/observability"],
  client: ["contract/api"],
  dashboard: ["contract/api"],
  app: ["contract", "shared", "controlPlane", "daemon"]
}

const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter(
  (file) => /\.tsx?$/.test(file) && !file.startsWith("client/dist/")
)

/** Folders with several modules. */
const groups = ["contract", "controlPlane", "shared"]

const moduleOf = (file: string) => {
  const parts = dirname(file).split("/")
  return parts
    .slice(0, groups.includes(parts[0] ?? "") ? 2 : 1)
    .join("/")
    .replace(/^\.$/, "")
}

/** Whether a module may import another. */
const mayImport = (module: string, target: string) =>
  [module, "contract/domain", "shared/work", ...(allowedImports[module] ?? [])].some(
    (allowed) => target === allowed || target.startsWith(`${allowed}/`)
  ) && !(module === "shared/work" && target !== module)

const importsOf = (file: string) =>
  [...readFileSync(join(src, file), "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)].map((match) =>
    relative(src, resolve(src, dirname(file), match[1] ?? ""))
  )

/** `cli` and `main.ts` form the composition root, which may import everything. */
const modules = [...new Set(files.map(moduleOf))].filter((module) => module !== "" && module !== "cli")

describe("architecture: imports between modules", () => {
  it("the table lists every module", () => {
    expect(modules.toSorted()).toEqual(Object.keys(allowedImports).toSorted())
  })

  it.each(modules)("%s imports only the modules that the table allows", (module) => {
    const offences = files
      .filter((file) => moduleOf(file) === module)
      .flatMap((file) =>
        importsOf(file)
          .filter((target) => !mayImport(module, moduleOf(target)))
          .map((target) => `${file} -> ${target}`)
      )
    expect(offences).toEqual([])
  })

  it("muster-client and all that it imports need nothing but effect, so that it runs in a browser", () => {
    /** Returns the files that a file imports at run time, directly or indirectly. */
    const reached = (file: string, known = new Set<string>()): ReadonlySet<string> => {
      if (known.has(file)) return known
      known.add(file)
      for (const target of importsOf(file)) reached(target, known)
      return known
    }
    const client = files.filter((file) => moduleOf(file) === "client").flatMap((file) => [...reached(file)])
    const foreign = [...new Set(client)].flatMap((file) =>
      [...readFileSync(join(src, file), "utf8").matchAll(/(?:from|import)\s*\(?\s*"([^."][^"]*)"/g)]
        .map(([, name = ""]) => name)
        .filter((name) => !/^effect(?:\/|$)/.test(name))
        .map((name) => `${file} -> ${name}`)
    )
    expect(foreign).toEqual([])
    const packageOf = (folder: string) => JSON.parse(readFileSync(join(src, folder, "package.json"), "utf8"))
    const { peerDependencies, version, ...others } = packageOf("client")
    expect(Object.keys(peerDependencies)).toEqual(["effect"])
    expect(others).not.toHaveProperty("dependencies")
    expect(version).toBe(packageOf("..").version)
  })

  it("the dashboard, which the browser runs, imports types of other modules, values of files without imports, and packages of its bundle", () => {
    const bundled =
      /^(?:@codemirror\/.+|@lezer\/highlight|@preact\/signals|@xterm\/(?:addon-fit|xterm)|preact(?:\/hooks)?|uplot)$/
    const offences = files
      .filter((file) => moduleOf(file) === "dashboard")
      .flatMap((file) =>
        [
          ...readFileSync(join(src, file), "utf8").matchAll(
            /^(?:import|export) (?!type )[^"=]*?from "([^"]+)"/gm
          )
        ]
          .map(([, target = ""]) => target)
          .filter((target) =>
            target.startsWith(".")
              ? moduleOf(relative(src, resolve(src, dirname(file), target))) !== "dashboard" &&
                importsOf(relative(src, resolve(src, dirname(file), target))).length > 0
              : !bundled.test(target)
          )
          .map((target) => `${file} -> ${target}`)
      )
    expect(offences).toEqual([])
  })

  it("folders of a module have no import cycle", () => {
    const folders = Map.groupBy(files, dirname)
    const targets = new Map(
      [...folders].map(([folder, its]) => [
        folder,
        new Set(its.flatMap((file) => importsOf(file).map(dirname)))
      ])
    )
    /** Returns the folders that a folder imports, directly or indirectly. */
    const reachable = (folder: string, known = new Set<string>()): ReadonlySet<string> => {
      for (const target of targets.get(folder) ?? []) {
        if (target !== folder && !known.has(target)) reachable(target, known.add(target))
      }
      return known
    }
    expect([...folders.keys()].filter((folder) => reachable(folder).has(folder))).toEqual([])
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

  it("no file throws, awaits a bare promise or silences the type checker", () => {
    const forbidden: ReadonlyArray<readonly [RegExp, string]> = [
      [/^\s*throw\s/m, "throw"],
      [/\basync\s+(?:function|\()/, "async function"],
      [/(?<!\.)\bawait\s+[\w(]/, "await"],
      [/@ts-(?:ignore|expect-error|nocheck)/, "@ts-ignore"],
      [/:\s*any\b|<any>|as any\b/, "any"],
      [/\bforkDetach\b/, "forkDetach"]
    ]
    /** The browser has no Effect: its code waits for promises that never reject. */
    const isAllowed = (file: string, name: string) =>
      file.startsWith("dashboard/") && (name === "async function" || name === "await")
    const offences = files.flatMap((file) => {
      const text = readFileSync(join(src, file), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*$|"[^"\n]*"/gm, "")
      return forbidden
        .filter(([pattern, name]) => pattern.test(text) && !isAllowed(file, name))
        .map(([, name]) => `${file}: ${name}`)
    })
    expect(offences).toEqual([])
  })
})
