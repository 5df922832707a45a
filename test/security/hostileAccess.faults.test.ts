/** A server that exchanges what callers access at the same moment (spec 10.5). */
import { spawn, spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { existsSync, mkdirSync, promises, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { join } from "node:path"
import { assert, describe, it, vi } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { serverId } from "../../src/contract/domain/Id.ts"
import { idBytes } from "../../src/contract/domain/idBytes.ts"
import { asRoot, filesOf, put, refusalOf, type ScenePlace } from "../daemon/access/scene.ts"
import { smallDisk } from "../daemon/files/scene.ts"
import { harness } from "../daemon/support.ts"
import { eventually, until } from "../support/eventually.ts"
import { archive, member } from "../support/tar.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

/** Exchanges the folder `swap` for a link to `outside`, and the file `one` for a link into it, without a pause. */
const swapper = `
  const fs = require("node:fs")
  const [outside, counted] = process.argv.slice(1)
  const quietly = (run) => { try { run() } catch {} }
  for (let swaps = 1; ; swaps++) {
    quietly(() => fs.renameSync("swap", "aside"))
    quietly(() => fs.symlinkSync(outside, "swap"))
    quietly(() => fs.rmSync("one"))
    quietly(() => fs.symlinkSync(outside + "/secret", "one"))
    quietly(() => fs.unlinkSync("swap"))
    quietly(() => fs.renameSync("aside", "swap"))
    quietly(() => fs.unlinkSync("one"))
    quietly(() => fs.writeFileSync("one", "inside"))
    if (swaps % 100 === 0) fs.writeFileSync(counted, String(swaps))
  }`

const swapping = Effect.fnUntraced(function* (folder: string, outside: string) {
  const counted = join(yield* temporaryFolder, "swaps")
  writeFileSync(counted, "0")
  yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, ["-e", swapper, outside, counted], { cwd: folder, stdio: "ignore" })
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  return () => Number(readFileSync(counted, "utf8"))
})

const SECRET = "text of another server"
/** Of 10,000 accesses in all. */
const ACCESSES = 3000
const volumes = [{ name: "s", source: "shared", target: "shared", mode: "rw" }] as const
const writing = { read: true, write: true, create: true, exclusive: false, truncate: false }

type Access = (at: number) => Effect.Effect<unknown, unknown>

interface Swapped {
  readonly where: ScenePlace
  /** The folder that the server changes, as callers name it. */
  readonly at: "" | "/shared"
  /** Accesses, and swaps that happen meanwhile at least. */
  readonly accesses: number
}

/** Remote nodes and overlays take several times as long for each access. */
const swapped: Readonly<Record<string, Swapped>> = {
  "plain folder, embedded": {
    where: { far: false, instanceFiles: "copy" },
    at: "",
    accesses: ACCESSES
  },
  "volume, embedded": { where: { far: false, instanceFiles: "copy" }, at: "/shared", accesses: ACCESSES },
  "plain folder, remote": { where: { far: true, instanceFiles: "copy" }, at: "", accesses: 1000 },
  ...(asRoot ? { "overlay, embedded": { where: { far: false }, at: "", accesses: ACCESSES } } : {})
}

/** Accesses of each kind to what is swapped. Each one may fail, and none may reach the folder outside. */
const accessesTo = (scene: Effect.Success<ReturnType<typeof filesOf>>, top: Swapped["at"]) => {
  const { change, files, id, list, read, write } = scene
  const tar = archive(
    member({ name: "./secret", content: "unpacked" }),
    member({ name: "./sub/new", content: "unpacked" })
  )
  const unpacked = (to: string) => {
    const operation_id = serverId(idBytes(16))
    const task = { kind: "unpack" as const, to, overwrite: "replace" as const }
    return files
      .receive(id, { operation_id, task }, Stream.make(tar))
      .pipe(Effect.andThen(eventually(files.progress(id, operation_id), ({ state }) => state !== "running")))
  }
  const archived = (path: string) =>
    files.archive(id, { paths: [path], format: "tar" }).pipe(
      Effect.flatMap(Stream.runCollect),
      Effect.map((pieces) => Buffer.concat(pieces).toString("latin1")),
      Effect.scoped
    )
  const inPlace = (path: string) =>
    Effect.gen(function* () {
      const session = yield* files.session(id)
      const file = yield* session.open(path, writing, 0o644)
      const text = Buffer.from(yield* file.read(0, 100)).toString()
      yield* file.write(0, Buffer.from("inside"))
      return text
    }).pipe(Effect.scoped)
  const uploaded = Effect.fnUntraced(function* (path: string) {
    const of = { upload_id: randomBytes(24).toString("base64url"), owner: "key_1" }
    yield* files.uploads.begin(id, { ...of, path, size: 7, metadata: "" })
    const sent = files.uploads.append(id, { ...of, offset: 0 }, Stream.make(Buffer.from("written")))
    yield* Effect.onError(sent, () => Effect.ignore(files.uploads.end(id, of)))
  })
  const packed = Effect.fnUntraced(function* (path: string, to: string) {
    const operation_id = serverId(idBytes(16))
    const task = { kind: "pack", paths: [path], to, format: "tar", overwrite: "replace" } as const
    yield* files.begin(id, { operation_id, task })
    yield* eventually(files.progress(id, operation_id), ({ state }) => state !== "running")
    return yield* read(to)
  })
  const swap = `${top}/swap`
  /** Changes of one session, of which each may fail. */
  const inSession = Effect.gen(function* () {
    const session = yield* files.session(id)
    const listed = yield* Effect.option(Effect.flatMap(session.openFolder(swap), ({ read }) => read))
    for (const change of [
      { kind: "set", path: `${swap}/secret`, attributes: { mode: 0o600, size: 6 } },
      { kind: "set", path: swap, attributes: { mode: 0o755, modified: 1 } },
      { kind: "folder", path: `${swap}/sub` },
      { kind: "rename", from: `${swap}/secret`, path: `${swap}/sub/secret`, replace: true },
      { kind: "rename", from: `${swap}/sub/secret`, path: `${swap}/secret`, replace: true },
      { kind: "remove", path: `${swap}/secret` },
      { kind: "remove-folder", path: `${swap}/sub` }
    ] as const)
      yield* Effect.ignore(session.change(change))
    return listed
  }).pipe(Effect.scoped)
  /** Each of these takes a few milliseconds. */
  const short: ReadonlyArray<Access> = [
    () => read(`${swap}/secret`),
    () => read(`${top}/one`),
    () => list(swap),
    (at) => write(`${swap}/w${at % 7}`, "written"),
    (at) => write(`${swap}/made${at % 5}/w`, "written"),
    () => write(`${swap}/secret`, "inside"),
    () => inPlace(`${swap}/secret`),
    () => change({ kind: "delete", path: `${swap}/sub` }),
    () => change({ kind: "delete", path: `${swap}/secret` }),
    () => change({ kind: "folder", path: `${swap}/sub` }, { kind: "mode", path: `${top}/one`, mode: "0600" }),
    () => change({ kind: "move", from: `${swap}/w1`, path: `${swap}/sub/w1`, overwrite: "replace" })
  ]
  /** These go through whole folders, or have steps that wait for one another, and take ten times as long. */
  const long: ReadonlyArray<Access> = [
    (at) =>
      change(
        { kind: "copy", from: swap, path: `${top}/copy${at % 3}`, overwrite: "replace" },
        { kind: "delete", path: `${top}/copy${at % 3}` }
      ),
    () =>
      files.search(id, {
        path: top === "" ? "/" : top,
        text: "another server",
        limit: 10,
        case_sensitive: true
      }),
    () => files.search(id, { path: swap, name: "kept", limit: 10, case_sensitive: true }),
    () => unpacked(swap),
    (at) => unpacked(`${swap}/unpacked${at % 3}`),
    () => archived(swap),
    (at) => uploaded(`${swap}/uploaded${at % 3}`),
    () => uploaded(`${swap}/secret`),
    () => inSession,
    (at) => packed(swap, `${top}/packed${at % 2}`),
    () => packed(`${top}/one`, `${swap}/packed`)
  ]
  /** Every short one, and then the next two long ones. */
  const accessAt: Access = (at) => {
    const round = Math.floor(at / (short.length + 2))
    const place = at % (short.length + 2)
    const access = short[place] ?? long[(2 * round + place - short.length) % long.length]
    return access?.(at) ?? Effect.void
  }
  return { accessAt, diff: files.diff(id) }
}

for (const [name, { accesses, at: top, where }] of Object.entries(swapped)) {
  describe(`SECURITY: a server that swaps folders for links: ${name}`, () => {
    it.live(
      `nothing outside of the server is read or changed by ${accesses} accesses`,
      () =>
        Effect.gen(function* () {
          // Writes wait for no disk, so that more of them meet a swap.
          const node = yield* harness(where, asRoot ? yield* smallDisk(64) : yield* temporaryFolder)
          const scene = yield* filesOf(where, { volumes, files: { volumes: "write" } }, node)
          const folder = top === "" ? scene.folder : join(node.dataDir, "volumes/shared")
          const outside = yield* temporaryFolder
          writeFileSync(join(outside, "secret"), SECRET)
          mkdirSync(join(outside, "sub"))
          writeFileSync(join(outside, "sub/kept"), SECRET)
          mkdirSync(join(folder, "swap/sub"), { recursive: true })
          put(folder, "swap/secret", "inside")
          put(folder, "one", "inside")
          const before = statSync(outside)
          const swaps = yield* swapping(folder, outside)
          yield* until("the server swaps", () => swaps() > 0)
          const seen: Record<string, number> = {}
          const note = (effect: Effect.Effect<unknown, unknown>) =>
            Effect.map(
              Effect.matchEffect(effect, {
                onSuccess: (value) => Effect.succeed(JSON.stringify(value) ?? ""),
                onFailure: (error) => refusalOf(Effect.fail(error))
              }),
              (text) => {
                const kind = /^\d{3} /.exec(text)?.[0] ?? (text === '"inside"' ? "inside" : "done")
                const found = text.includes(SECRET) || kind === "500 " ? text : kind
                seen[found] = (seen[found] ?? 0) + 1
              }
            )
          const { accessAt, diff } = accessesTo(scene, top)
          const begun = swaps()
          const run = (at: number) => note(accessAt(at))
          yield* Effect.forEach(Array(accesses).keys(), run, { concurrency: 12, discard: true })
          yield* note(diff)
          yield* until("the server has swapped more often", () => swaps() - begun > 10_000)
          assert.deepStrictEqual(
            Object.keys(seen).filter((text) => text.includes(SECRET) || text.startsWith("500 ")),
            []
          )
          assert.isAbove(seen.inside ?? 0, 0)
          assert.isAbove(seen["409 "] ?? 0, 0)
          assert.deepStrictEqual(readdirSync(outside, { recursive: true }).toSorted(), [
            "secret",
            "sub",
            "sub/kept"
          ])
          for (const file of ["secret", "sub/kept"])
            assert.strictEqual(readFileSync(join(outside, file), "utf8"), SECRET)
          const { mode, mtimeMs } = statSync(outside)
          assert.deepStrictEqual([mtimeMs, mode], [before.mtimeMs, before.mode])
        }).pipe(Effect.scoped),
      600_000
    )
  })
}

describe("SECURITY: large and deep folders of a server", () => {
  it.live("of 200,000 entries, a page takes little memory, and looks at its own entries only", () =>
    Effect.gen(function* () {
      const { folder, list } = yield* filesOf({ far: false, instanceFiles: "copy" })
      mkdirSync(join(folder, "many"))
      const made = spawnSync("sh", ["-c", "seq -f 'name-%06.0f' 1 200000 | xargs touch"], {
        cwd: join(folder, "many")
      })
      assert.strictEqual(made.status, 0)
      yield* list("/many", { limit: 10 })
      globalThis.gc?.()
      const before = process.memoryUsage().rss
      const looked = vi.spyOn(promises, "lstat")
      syncBuiltinESMExports()
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          looked.mockRestore()
          syncBuiltinESMExports()
        })
      )
      const page = yield* list("/many")
      assert.isBelow(process.memoryUsage().rss - before, 32 * 1024 * 1024)
      const count = looked.mock.calls.filter(([path]) => String(path).includes("/name-")).length
      assert.strictEqual(count, 1000)
      assert.deepStrictEqual([page.entries.length, page.next], [1000, "name-001000"])
      const last = yield* list("/many", { after: "name-199999" })
      assert.deepStrictEqual([last.entries.map(({ name }) => name), last.next], [["name-200000"], undefined])
    }).pipe(Effect.scoped)
  )

  it.live("a tree deeper than a path is deleted", () =>
    Effect.gen(function* () {
      const { change, folder } = yield* filesOf({ far: false, instanceFiles: "copy" })
      const nest = `const fs = require("node:fs"); for (let at = 0; at < 1000; at++) { fs.mkdirSync("d"); process.chdir("d"); fs.writeFileSync("f", "") }`
      assert.strictEqual(spawnSync(process.execPath, ["-e", nest], { cwd: folder }).status, 0)
      assert.deepStrictEqual(yield* change({ kind: "delete", path: "/d" }), [undefined])
      assert.isFalse(existsSync(join(folder, "d")))
      assert.deepStrictEqual(
        readdirSync(folder).filter((name) => name.startsWith(".muster-")),
        []
      )
    }).pipe(Effect.scoped)
  )
})
