import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { zstdDecompressSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { TargetAccess } from "../../../src/contract/domain/BackupTarget.ts"
import { checkBase } from "../../../src/daemon/backups/bases.ts"
import { lookInto } from "../../../src/daemon/backups/browse.ts"
import { folderTarget, ownFolder } from "../../../src/daemon/backups/target.ts"
import { eventually, until } from "../../support/eventually.ts"
import { freshSeed, seeded } from "../../support/random.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { filesOf, places, put } from "../access/scene.ts"
import { harness } from "../support.ts"
import {
  createOf,
  downloaded,
  folderOf,
  here,
  indexOf,
  manifestOf,
  newId,
  objectsOf,
  restoreOf,
  storedOf,
  verifyOf,
  worked
} from "./scene.ts"

type Scene = Effect.Success<ReturnType<typeof filesOf>>

/** What differs between two folders, but for the volumes of the server. */
const differencesOf = (one: string, other: string) => {
  try {
    execFileSync("diff", ["-r", "--no-dereference", "--exclude=shared", one, other])
    return ""
  } catch (error) {
    return String(error)
  }
}

const written = Effect.fnUntraced(function* (
  scene: Scene,
  exclude: ReadonlyArray<string> = [],
  target: TargetAccess = here
) {
  const backup_id = newId()
  const end = yield* worked(scene, { ...createOf(backup_id), contents: "written", exclude }, newId(), target)
  assert.strictEqual(end.state, "done", end.reason)
  return { backup_id, figures: end.figures }
})

/** Reads the archive as another node gets it. */
const plain = ({ backups }: Scene, stored: ReturnType<typeof storedOf>) =>
  Effect.scoped(Effect.flatMap(backups.archive(stored), Stream.runCollect))

const MIB = 1024 ** 2
/** Bytes of a stored block. */
const BLOCK = 128 * 1024

const basesOf = (scene: Scene) => objectsOf(scene).filter((name) => /^base-[0-9a-f]{64}$/.test(name))

/** Changes files of the base in every way. */
const change = (folder: string) => {
  put(folder, "plugins/a.yml", "changed")
  rmSync(join(folder, "server.jar"))
  rmSync(join(folder, "world"), { recursive: true })
  mkdirSync(join(folder, "world"))
  put(folder, "world/level.dat", "new")
  symlinkSync("world/level.dat", join(folder, "link"))
  writeFileSync(Buffer.from(`${folder}/\xff%41.txt`, "latin1"), "bytes")
  put(folder, "run.sh", "#!/bin/sh")
  chmodSync(join(folder, "run.sh"), 0o750)
  utimesSync(join(folder, "run.sh"), 1_000_000_000, 1_000_000_000)
}

for (const [name, place] of Object.entries(places)) {
  describe(`spec 12.12: backups of what a server has written: ${name}`, () => {
    it.live("the archive has only what differs from the base, which is stored once for two servers", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        change(scene.folder)
        const { backup_id, figures } = yield* written(scene)
        const [base, ...others] = basesOf(scene)
        assert.deepStrictEqual(others, [])
        assert.strictEqual(figures?.kind, "written")
        assert.strictEqual(`base-${figures?.base?.digest}`, base)
        const entries = indexOf(scene, backup_id)
        assert.strictEqual(entries.get("/server.jar")?.type, "removed")
        assert.strictEqual(entries.get("/world/region")?.type, "removed")
        assert.strictEqual(entries.get("/plugins/a.yml")?.type, "file")
        const second = yield* filesOf(place, {}, scene.node)
        put(second.folder, "own.txt", "own")
        const other = yield* written(second)
        assert.deepStrictEqual(basesOf(scene), [base])
        const own = indexOf(second, other.backup_id)
        assert.isTrue(own.has("/own.txt"))
        assert.isFalse(own.has("/server.jar"))
        assert.deepStrictEqual(
          manifestOf(second, other.backup_id).base.parts,
          manifestOf(scene, backup_id).base.parts
        )
      })
    )

    it.live("without a kind, a layer over a base is stored without it, and a copy with all files", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        put(scene.folder, "own.txt", "own")
        const backup_id = newId()
        const { contents: _, ...task } = createOf(backup_id)
        const { figures, reason } = yield* worked(scene, task)
        assert.strictEqual(reason, undefined)
        const hasBase = indexOf(scene, backup_id).has("/server.jar")
        const isLayer = place.instanceFiles === undefined
        assert.deepStrictEqual([figures?.kind, hasBase], isLayer ? ["written", false] : ["full", true])
        assert.lengthOf(basesOf(scene), isLayer ? 1 : 0)
      })
    )

    it.live(
      "if the base is gone, a backup without a kind is full, and a written one fails and names full",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          put(scene.folder, "own.txt", "own")
          const generations = join(scene.node.dataDir, "base/.generations")
          const aside = `${generations}-aside`
          yield* Effect.acquireRelease(
            Effect.sync(() => renameSync(generations, aside)),
            () => Effect.sync(() => renameSync(aside, generations))
          )
          const backup_id = newId()
          const { contents: _, ...task } = createOf(backup_id)
          const { figures, reason } = yield* worked(scene, task)
          assert.strictEqual(reason, undefined)
          assert.strictEqual(figures?.kind, "full")
          const entries = indexOf(scene, backup_id)
          assert.isTrue(entries.has("/own.txt") && entries.has("/server.jar"))
          const asked = yield* worked(scene, { ...createOf(newId()), contents: "written" })
          assert.strictEqual(asked.state, "failed")
          assert.match(asked.reason ?? "", /the base of the server is gone.*the kind full/)
          assert.deepStrictEqual(basesOf(scene), [])
        }).pipe(Effect.scoped)
    )

    it.live("the manifest has the size of a download; without it, the entries are counted", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        change(scene.folder)
        const { backup_id, figures } = yield* written(scene)
        const size = { path: "/", limit: 0, measures: true }
        const look = scene.backups.look(storedOf(backup_id, figures), size)
        const { archive_bytes } = yield* look
        const { archive_bytes: noted, ...earlier } = manifestOf(scene, backup_id)
        assert.strictEqual(archive_bytes, noted)
        const target = folderTarget(ownFolder(join(scene.node.dataDir, "backups")), 0)
        assert.strictEqual((yield* lookInto(target, earlier, size)).archive_bytes, archive_bytes)
        rmSync(join(folderOf(scene, backup_id), "index-00001"))
        assert.strictEqual((yield* look).archive_bytes, archive_bytes)
      })
    )

    it.live("a download has all files, and so have a list and single files", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backups, folder } = scene
        change(folder)
        const { backup_id, figures } = yield* written(scene)
        const { to } = yield* downloaded(scene, backup_id, figures)
        assert.strictEqual(differencesOf(folder, to), "")
        assert.strictEqual(statSync(join(to, "run.sh")).mode & 0o777, 0o750)
        assert.strictEqual(statSync(join(to, "run.sh")).mtimeMs, 1_000_000_000_000)
        assert.strictEqual(figures?.files, 4)
        const stored = storedOf(backup_id, figures)
        const top = yield* backups.look(stored, { path: "/", limit: 100 })
        assert.deepStrictEqual(
          top.entries.map(({ path }) => path),
          ["/link", "/plugins", "/run.sh", "/world", "/%FF%41.txt"]
        )
        const index = yield* Effect.scoped(Effect.flatMap(backups.index(stored), Stream.runCollect))
        const lines = Buffer.concat(index).toString().trimEnd().split("\n")
        assert.deepStrictEqual(
          lines.map((line) => JSON.parse(line).path),
          ["/", "/link", "/plugins", "/plugins/a.yml", "/run.sh", "/world", "/world/level.dat", "/%FF%41.txt"]
        )
        for (const path of ["/plugins/a.yml", "/world/level.dat"]) {
          const { entry } = yield* backups.look(stored, { path, limit: 0 })
          const { at = 0, sha256 = "", size = 0 } = entry ?? {}
          const file = { at, sha256, size, start: 0, end: size - 1 }
          const bytes = yield* Effect.scoped(
            Effect.flatMap(backups.contents(stored, file), Stream.runCollect)
          )
          assert.strictEqual(Buffer.concat(bytes).toString(), readFileSync(join(folder, path), "utf8"))
        }
      })
    )

    it.live(
      "an archive with stored blocks has the announced size, and any range of it is the same bytes",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { backups, folder } = scene
          change(folder)
          // The base and the server have files by turns, and one is longer than a frame and a block.
          put(folder, "aaa.txt", "first")
          const long = `${"n".repeat(120)}/${"m".repeat(200)}`
          mkdirSync(join(folder, long), { recursive: true })
          symlinkSync(long, join(folder, long, "link"))
          writeFileSync(join(folder, "noise.bin"), randomBytes(3 * MIB + 1))
          writeFileSync(join(folder, "zeros"), Buffer.alloc(MIB))
          const { backup_id, figures } = yield* written(scene)
          const stored = storedOf(backup_id, figures)
          const { archive_bytes: size = 0 } = yield* backups.look(stored, {
            path: "/",
            limit: 0,
            measures: true
          })
          const read = (start: number, end: number) =>
            Effect.map(
              Effect.scoped(Effect.flatMap(backups.archive(stored, { start, end, size }), Stream.runCollect)),
              (chunks) => Buffer.concat(chunks)
            )
          const whole = yield* read(0, size - 1)
          assert.strictEqual(whole.length, size)
          const to = yield* temporaryFolder
          writeFileSync(join(to, "whole.tar.zst"), whole)
          mkdirSync(join(to, "files"))
          execFileSync("tar", ["--zstd", "-xf", join(to, "whole.tar.zst"), "-C", join(to, "files")])
          assert.strictEqual(differencesOf(folder, join(to, "files")), "")
          const tar = zstdDecompressSync(whole)
          assert.isTrue(zstdDecompressSync(Buffer.concat(yield* plain(scene, stored))).equals(tar))
          const { below, seed } = seeded(freshSeed())
          const ranges = [0, 5, 6, 8, 9, BLOCK + 8, BLOCK + 9, 2 * MIB, size - 1025, size - 1].map(
            (start) => [start, Math.min(size - 1, start + below(size))] as const
          )
          for (const [start, end] of [...ranges, [0, 0], [below(size), size - 1]] as const)
            assert.isTrue(
              (yield* read(start, end)).equals(whole.subarray(start, end + 1)),
              `${start}-${end}, seed ${seed}`
            )
        })
    )

    it.live("a file of the base is read from the base, also where the server has other files", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backups } = scene
        put(scene.folder, "aaa.bin", randomBytes(5_000_000).toString("latin1"))
        const { backup_id, figures } = yield* written(scene)
        assert.isFalse(indexOf(scene, backup_id).has("/server.jar"))
        const stored = storedOf(backup_id, figures)
        const { entry } = yield* backups.look(stored, { path: "/server.jar", limit: 0 })
        const { at = 0, sha256 = "", size = 0 } = entry ?? {}
        const file = { at, sha256, size, start: 0, end: size - 1 }
        const bytes = yield* Effect.scoped(Effect.flatMap(backups.contents(stored, file), Stream.runCollect))
        assert.strictEqual(Buffer.concat(bytes).toString(), "jar\n")
      })
    )

    it.live("the server, one of another blueprint and one on another node get exactly these files", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backups, folder, node } = scene
        change(folder)
        const { backup_id, figures } = yield* written(scene)
        const { to } = yield* downloaded(scene, backup_id, figures)
        // The base of the blueprint is another one by now.
        const other = yield* node.installed({
          install: { script: "mkdir plugins && echo other > server.jar" }
        })
        const there = join(node.dataDir, "servers", other, "files")
        const request = { operation_id: newId(), task: restoreOf(backup_id, figures), target: here }
        const ended = yield* eventually(backups.work(other, request), ({ state }) => state !== "running")
        assert.strictEqual(ended.state, "done", ended.reason)
        assert.strictEqual(differencesOf(there, to), "")
        rmSync(join(folder, "plugins"), { recursive: true })
        put(folder, "server.jar", "is back")
        const restored = yield* worked(scene, restoreOf(backup_id, figures))
        assert.strictEqual(restored.state, "done", restored.reason)
        assert.strictEqual(differencesOf(folder, to), "")
        const away = yield* filesOf(place)
        const arriving = { ...request, task: restoreOf(backup_id, figures, true) }
        yield* Effect.scoped(
          Effect.flatMap(backups.archive(storedOf(backup_id, figures)), (bytes) =>
            away.backups.receive(away.id, arriving, bytes)
          )
        )
        const arrived = yield* eventually(
          away.backups.work(away.id, arriving),
          ({ state }) => state !== "running"
        )
        assert.strictEqual(arrived.state, "done", arrived.reason)
        assert.strictEqual(differencesOf(away.folder, to), "")
      })
    )

    it.live("a folder and a file of it are restored, of the base and of the server", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { folder } = scene
        put(folder, "plugins/own.yml", "own")
        const { backup_id, figures } = yield* written(scene)
        rmSync(join(folder, "plugins"), { recursive: true })
        put(folder, "server.jar", "other")
        put(folder, "later.txt", "later")
        const part = { paths: ["/plugins", "/server.jar"], mode: "replace" as const }
        const end = yield* worked(scene, restoreOf(backup_id, figures, false, part))
        assert.strictEqual(end.state, "done", end.reason)
        assert.deepStrictEqual(readdirSync(join(folder, "plugins")).toSorted(), ["a.yml", "own.yml"])
        assert.strictEqual(readFileSync(join(folder, "server.jar"), "utf8"), "jar\n")
        assert.strictEqual(readFileSync(join(folder, "later.txt"), "utf8"), "later")
      })
    )

    it.live("what the blueprint leaves out is left out of a restore, also where the base has it", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { backup_id, figures } = yield* written(scene, ["/world/region"])
        const { to } = yield* downloaded(scene, backup_id, figures)
        assert.isTrue(existsSync(join(to, "world")))
        assert.isFalse(existsSync(join(to, "world/region")))
      })
    )

    it.live("a damaged base is found by verification, ends a restore, and is stored anew", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const { folder } = scene
        put(folder, "own.txt", "own")
        const { backup_id, figures } = yield* written(scene)
        const [base = ""] = basesOf(scene)
        const objects = readdirSync(folderOf(scene, base))
        const part = join(folderOf(scene, base), objects.find((one) => one.includes("part-")) ?? "")
        const bytes = readFileSync(part)
        const spoiled = Buffer.from(bytes)
        spoiled[100] = (spoiled[100] ?? 0) ^ 1
        writeFileSync(part, spoiled)
        const verified = yield* worked(scene, verifyOf(backup_id, figures))
        assert.strictEqual(verified.state, "failed")
        assert.match(
          verified.reason ?? "",
          /^base-[0-9a-f]{64}\/[a-z0-9]{12}-part-00001 is damaged: its SHA-256 is another$/
        )
        const restored = yield* worked(scene, restoreOf(backup_id, figures))
        assert.strictEqual(restored.state, "failed")
        assert.strictEqual(readFileSync(join(folder, "own.txt"), "utf8"), "own")
        const opened = scene.backups.archive(storedOf(backup_id, figures))
        const refused = yield* Effect.flip(Effect.scoped(opened))
        assert.propertyVal(
          refused,
          "hint",
          "Verify the backup, which names a damaged part, and use another backup."
        )
        rmSync(part)
        const target = folderTarget(ownFolder(dirname(folderOf(scene, base))), 0)
        const lost = yield* Effect.flip(checkBase(target, manifestOf(scene, backup_id).base))
        assert.propertyVal(lost, "code", "EBASE")
        const again = yield* written(scene)
        const { to } = yield* downloaded(scene, again.backup_id, again.figures)
        assert.strictEqual(differencesOf(folder, to), "")
      })
    )
  })
}

/** Types, permissions and links of all paths of a folder, but for the volumes of the server. */
const listOf = (folder: string) =>
  execFileSync("find", [".", "-path", "./shared", "-prune", "-o", "-printf", "%P %y %m %l\n"], {
    cwd: folder
  })
    .toString("latin1")
    .split("\n")
    .toSorted()
    .join("\n")

const base = [
  "for d in a b c; do mkdir -p $d/x/y $d.d; for f in 1 2 3; do echo $d$f > $d/$f; echo $f > $d/x/$f; echo y$f > $d/x/y/$f; done; done",
  "ln -s a/1 link && ln -s nowhere a/x/broken && chmod 750 b && chmod 600 c/1 && echo dot > a.txt && : > empty"
].join("\n")

for (const place of Object.values(places).filter(({ far }) => !far)) {
  describe(`spec 12.12: any change of the base: ${place.instanceFiles ?? "overlay"}`, () => {
    it.live("a server of the backup has the same paths with the same types, permissions and bytes", () =>
      Effect.gen(function* () {
        const { below, seed } = seeded(freshSeed())
        const scene = yield* filesOf(place)
        const { node } = scene
        const id = yield* node.installed({ install: { script: base } })
        const other = yield* node.installed({ install: { script: base } })
        const [folder, there] = [id, other].map((one) => join(node.dataDir, "servers", one, "files"))
        if (folder === undefined || there === undefined) assert.fail("there are two servers")
        const pick = () => {
          const paths = listOf(folder)
            .split("\n")
            .flatMap((line) => line.split(" ")[0] || [])
          return join(folder, paths[below(paths.length)] ?? "a")
        }
        const changes: ReadonlyArray<(path: string) => void> = [
          (path) => rmSync(path, { recursive: true, force: true }),
          (path) => {
            rmSync(path, { recursive: true, force: true })
            mkdirSync(path, { recursive: true })
            writeFileSync(join(path, "new"), String(below(1000)))
          },
          (path) => {
            rmSync(path, { recursive: true, force: true })
            writeFileSync(path, String(below(1000)))
          },
          (path) => {
            rmSync(path, { recursive: true, force: true })
            symlinkSync("../a/x", path)
          },
          (path) => {
            if (lstatSync(path).isFile()) linkSync(path, `${path}.${below(1e9)}`)
          },
          (path) => {
            if (!lstatSync(path).isSymbolicLink()) chmodSync(path, 0o700)
          }
        ]
        for (let round = 0; round < 3; round++) {
          for (let count = 0; count < 6; count++) {
            const path = pick()
            if (existsSync(path)) changes[below(changes.length)]?.(path)
          }
          const { backup_id, figures } = yield* written({ ...scene, id })
          const request = { operation_id: newId(), task: restoreOf(backup_id, figures), target: here }
          const end = yield* eventually(
            scene.backups.work(other, request),
            ({ state }) => state !== "running"
          )
          assert.strictEqual(end.state, "done", end.reason)
          assert.strictEqual(listOf(there), listOf(folder), `seed ${seed}`)
          assert.strictEqual(differencesOf(there, folder), "")
        }
      })
    )

    it.live(
      "a base stays while a backup needs it, and goes a day after that; a daemon that was killed leaves none",
      () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place)
          const { folder, node } = scene
          const { backup_id, figures } = yield* written(scene)
          const [own = ""] = basesOf(scene)
          const unfinished = `base-${"0".repeat(64)}`
          mkdirSync(folderOf(scene, unfinished))
          writeFileSync(join(folderOf(scene, unfinished), `${newId()}-part-00001`), "part")
          const age = () => {
            const yesterday = Date.now() / 1000 - 25 * 3600
            for (const name of [unfinished, own, backup_id].filter((one) =>
              existsSync(folderOf(scene, one))
            )) {
              for (const object of readdirSync(folderOf(scene, name)))
                utimesSync(join(folderOf(scene, name), object), yesterday, yesterday)
              utimesSync(folderOf(scene, name), yesterday, yesterday)
            }
          }
          const restarted = () => harness({ instanceFiles: place.instanceFiles ?? "auto" }, node.dataDir)
          age()
          yield* node.close
          const second = yield* restarted()
          yield* until("the unfinished base is gone", () => !existsSync(folderOf(scene, unfinished)))
          assert.deepStrictEqual(basesOf(scene), [own])
          const { to } = yield* downloaded({ backups: second.daemon.backups }, backup_id, figures)
          assert.strictEqual(differencesOf(folder, to), "")
          yield* second.daemon.backups.remove(backup_id, here)
          age()
          yield* second.close
          yield* restarted()
          yield* until("the base is gone", () => basesOf(scene).length === 0)
        })
    )

    it.live("a base whose manifest was not written is stored again, beside what is there", () =>
      Effect.gen(function* () {
        const scene = yield* filesOf(place)
        const first = yield* written(scene)
        const [own = ""] = basesOf(scene)
        rmSync(join(folderOf(scene, own), "manifest.json"))
        const second = yield* written(scene)
        for (const { backup_id, figures } of [first, second]) {
          const { to } = yield* downloaded(scene, backup_id, figures)
          assert.strictEqual(differencesOf(scene.folder, to), "")
        }
      })
    )
  })
}
