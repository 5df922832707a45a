/** Large transfers of the command line over connections that are cut, by commands and a service that are killed. */
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import {
  createReadStream,
  createWriteStream,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { pipeline } from "node:stream/promises"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startChild } from "../../support/child.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { root } from "../../support/docs.ts"
import { eventually, until } from "../../support/eventually.ts"
import { restartable, tcpProxy } from "../../support/faults/index.ts"
import { freePort } from "../../support/nodes.ts"
import { freeAllocations } from "../../support/ports.ts"
import { adminKey, startService } from "../../support/Service.ts"
import { installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const MIB = 2 ** 20
const SIZE = 224 * MIB
/** For transfers that are cut at 40 MiB only. */
const HALF = SIZE / 2

const games = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const sha256 = (file: string) =>
  Effect.promise(async () => {
    const hash = createHash("sha256")
    await pipeline(createReadStream(file), hash)
    return hash.digest("hex")
  })

/** Makes a file whose bytes differ from one place to another, and from one seed to another. */
const makeFile = (file: string, seed: string, size = SIZE) =>
  Effect.promise(() =>
    pipeline(function* () {
      for (let at = 0; at < size; at += MIB) {
        const digest = createHash("sha256").update(`${seed} ${at}`).digest()
        yield Buffer.alloc(Math.min(MIB, size - at), digest)
      }
    }, createWriteStream(file))
  )

const sizeAt = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? 0

/** A server, its folder on the disk of the node, and `muster files` through a proxy whose connections can be cut. */
const makeScene = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const { env } = yield* definitions(games)
  const port = yield* freePort
  const dataDir = join(folder, "data")
  const service = yield* restartable(
    "the service",
    startService({ dataDir, env: { ...(yield* freeAllocations(4)), ...env, MUSTER_PORT: String(port) } })
  )
  const api = yield* service.current
  const id = yield* installed(api, "kept", { name: "lobby" })
  const proxy = yield* tcpProxy(port)
  const [started = ""] = globSync(join(dataDir, "**/server.sh")).filter((found) => found.includes(id))
  const config = join(folder, "config")
  const command = (...args: ReadonlyArray<string>) =>
    startChild([process.execPath, join(root, "dist/main.js"), ...args], {
      cwd: folder,
      env: {
        MUSTER_URL: `http://127.0.0.1:${proxy.port}`,
        MUSTER_API_KEY: adminKey,
        XDG_CONFIG_HOME: config
      }
    })
  return {
    api,
    service,
    proxy,
    server: dirname(started),
    notes: join(config, "muster/transfers"),
    cut: Effect.andThen(proxy.dropped.inject, proxy.dropped.heal),
    files: (...args: ReadonlyArray<string>) => command("files", ...args),
    backups: (...args: ReadonlyArray<string>) => command("backups", ...args),
    local: (name: string) => join(folder, name)
  }
})

const treeAt = (folder: string) =>
  existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: "utf8" }) : []

const notesIn = (folder: string) => (existsSync(folder) ? readdirSync(folder) : [])

/** Waits until a transfer has so many MiB. */
const reaches = (bytes: () => number, mib: number) =>
  until(`${mib} MiB are there`, () => bytes() >= mib * MIB)

describe("spec 8.7: large transfers of muster files", () => {
  it.live(
    "put continues after three cuts, kill -9 of the command and of the service, and Ctrl-C, with the same bytes",
    () =>
      Effect.gen(function* () {
        const { cut, files, local, notes, server, service } = yield* makeScene
        const world = local("world.zip")
        yield* makeFile(world, "one")
        const put = files("put", world, "lobby:")
        const arrived = () => Math.max(...readdirSync(server).map((name) => sizeAt(join(server, name))))

        const first = yield* put
        for (const mib of [20, 40, 60]) {
          yield* reaches(arrived, mib)
          yield* cut
        }
        yield* reaches(arrived, 80)
        yield* first.signal("SIGKILL")
        assert.strictEqual(yield* first.exited(), "SIGKILL", first.output())
        const [note = ""] = notesIn(notes)
        assert.strictEqual(statSync(join(notes, note)).mode & 0o777, 0o600)
        assert.strictEqual(statSync(notes).mode & 0o777, 0o700)

        const second = yield* put
        yield* second.prints(/^\/world\.zip continues at (?:[8-9]\d|1\d\d) MiB of 224 MiB$/m)
        yield* reaches(arrived, 120)
        yield* service.killed.inject
        yield* service.killed.heal
        yield* reaches(arrived, 160)
        yield* second.signal("SIGINT")
        yield* second.prints(/^The same command continues \/world\.zip at about 1\d\d MiB\.$/m)
        assert.notStrictEqual(yield* second.exited(), 0)
        assert.isFalse(existsSync(join(server, "world.zip")))

        const third = yield* put
        assert.strictEqual(yield* third.exited("60 seconds"), 0, third.output())
        assert.match(third.output(), /^\/world\.zip continues at \d+ MiB of 224 MiB\n$/)
        assert.strictEqual(yield* sha256(join(server, "world.zip")), yield* sha256(world))
        assert.deepStrictEqual(notesIn(notes), [])
        assert.sameMembers(readdirSync(server), ["server.sh", "world.zip"])
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "put begins again if the local file has changed, or its upload is gone; each file of a folder continues",
    () =>
      Effect.gen(function* () {
        const { files, local, notes, server } = yield* makeScene
        mkdirSync(local("worlds"))
        const world = local("worlds/world.zip")
        yield* makeFile(world, "one", HALF)
        writeFileSync(local("worlds/small.txt"), "small")
        const put = files("put", "-r", local("worlds"), "lobby:")
        const arrived = () =>
          Math.max(
            ...readdirSync(server, { recursive: true, encoding: "utf8" }).map((name) =>
              sizeAt(join(server, name))
            )
          )
        const stopped = Effect.fnUntraced(function* (says: RegExp | undefined) {
          const child = yield* put
          if (says !== undefined) yield* child.prints(says)
          yield* reaches(arrived, 40)
          yield* child.signal("SIGKILL")
          yield* child.exited()
        })
        yield* stopped(undefined)
        utimesSync(world, 1, 1)
        yield* stopped(/^\/worlds\/world\.zip begins again: .*world\.zip has changed since$/m)
        const temporary = globSync(join(server, "**/.*")).filter((file) => sizeAt(file) > MIB)
        assert.lengthOf(temporary, 1)
        for (const file of temporary) rmSync(file)
        yield* stopped(/^\/worlds\/world\.zip begins again: the earlier upload is gone$/m)
        const last = yield* put
        assert.strictEqual(yield* last.exited("60 seconds"), 0, last.output())
        assert.match(last.output(), /^\/worlds\/world\.zip continues at \d+ MiB of 112 MiB$/m)
        assert.strictEqual(yield* sha256(join(server, "worlds/world.zip")), yield* sha256(world))
        assert.deepStrictEqual(notesIn(notes), [])
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "get continues after cuts, kill -9 and Ctrl-C; it begins again if the file has changed",
    () =>
      Effect.gen(function* () {
        const { cut, files, local, notes, server } = yield* makeScene
        yield* makeFile(join(server, "world.zip"), "one")
        const get = files("get", "lobby:/world.zip", local("."))
        const part = local("world.zip.part")
        const arrived = () => sizeAt(part)

        const first = yield* get
        for (const mib of [20, 40, 60]) {
          yield* reaches(arrived, mib)
          yield* cut
        }
        yield* reaches(arrived, 80)
        yield* first.signal("SIGKILL")
        yield* first.exited()
        const second = yield* get
        yield* second.prints(/^\/world\.zip continues at (?:[8-9]\d|1\d\d) MiB of 224 MiB$/m)
        yield* reaches(arrived, 150)
        yield* second.signal("SIGINT")
        yield* second.prints(/^The same command continues \/world\.zip at 1\d\d MiB\.$/m)
        assert.notStrictEqual(yield* second.exited(), 0)
        const third = yield* get
        assert.strictEqual(yield* third.exited("60 seconds"), 0, third.output())
        assert.match(third.output(), /^\/world\.zip continues at \d+ MiB of 224 MiB\n$/)
        assert.strictEqual(yield* sha256(local("world.zip")), yield* sha256(join(server, "world.zip")))
        assert.isFalse(existsSync(part))
        assert.deepStrictEqual(notesIn(notes), [])

        const fourth = yield* get
        yield* reaches(arrived, 40)
        yield* fourth.signal("SIGKILL")
        yield* fourth.exited()
        yield* makeFile(join(server, "new.zip"), "two")
        renameSync(join(server, "new.zip"), join(server, "world.zip"))
        const last = yield* get
        assert.strictEqual(yield* last.exited("60 seconds"), 0, last.output())
        assert.include(last.output(), "/world.zip begins again: it has changed on the server since")
        assert.strictEqual(yield* sha256(local("world.zip")), yield* sha256(join(server, "world.zip")))
        assert.isFalse(existsSync(part))
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "spec 12.12: get of a backup that is made while it is sent continues after a cut and kill -9",
    () =>
      Effect.gen(function* () {
        const { backups, cut, local, server } = yield* makeScene
        yield* makeFile(join(server, "world.zip"), "one")
        const made = yield* backups("create", "lobby", "--kind", "written")
        assert.strictEqual(yield* made.exited("60 seconds"), 0, made.output())
        const archive = local("lobby.tar.zst")
        const get = backups("get", "lobby:latest", archive)
        const arrived = () => sizeAt(`${archive}.part`)
        const first = yield* get
        yield* reaches(arrived, 30)
        yield* cut
        yield* reaches(arrived, 80)
        yield* first.signal("SIGKILL")
        yield* first.exited()
        const second = yield* get
        yield* second.prints(/^the backup \w+ continues at \d+ MiB of 224 MiB$/m)
        assert.strictEqual(yield* second.exited("60 seconds"), 0, second.output())
        const to = local("unpacked")
        mkdirSync(to)
        execFileSync("tar", ["--zstd", "-xf", archive, "-C", to])
        assert.strictEqual(yield* sha256(join(to, "world.zip")), yield* sha256(join(server, "world.zip")))
        assert.isTrue(existsSync(join(to, "server.sh")))
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "another file in the place of the part is not continued, and each file of a folder continues",
    () =>
      Effect.gen(function* () {
        const { files, local, server } = yield* makeScene
        mkdirSync(join(server, "worlds"))
        yield* makeFile(join(server, "worlds/world.zip"), "one")
        writeFileSync(join(server, "worlds/world.zip.part"), "a file of the server")
        const get = files("get", "-r", "lobby:/worlds", local("."))
        const parts = () =>
          globSync(local("worlds/.*.part")).toSorted((one, other) => sizeAt(other) - sizeAt(one))
        const arrived = () => sizeAt(parts()[0] ?? "")
        const stoppedAt = Effect.fnUntraced(function* (mib: number) {
          const child = yield* get
          yield* reaches(arrived, mib)
          yield* child.signal("SIGKILL")
          yield* child.exited()
          return child
        })
        yield* stoppedAt(40)
        const again = yield* stoppedAt(100)
        assert.include(again.output(), "/worlds/world.zip continues at ")
        const [part = ""] = parts()
        yield* makeFile(local("foreign"), "two", 30 * MIB)
        renameSync(local("foreign"), part)
        const last = yield* get
        assert.strictEqual(yield* last.exited("60 seconds"), 0, last.output())
        assert.notInclude(last.output(), "continues at")
        assert.strictEqual(
          yield* sha256(local("worlds/world.zip")),
          yield* sha256(join(server, "worlds/world.zip"))
        )
        yield* eventually(() => parts().length === 0)
        assert.sameMembers(readdirSync(local("worlds")), ["world.zip", "world.zip.part"])
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "the same command goes on in the folder that it has made, and leaves its finished files; then it begins again",
    () =>
      Effect.gen(function* () {
        const { files, local, notes, server } = yield* makeScene
        const stopped = Effect.fnUntraced(function* (
          command: ReturnType<typeof files>,
          folder: string,
          signal: "SIGINT" | "SIGKILL"
        ) {
          const child = yield* command
          yield* reaches(() => Math.max(0, ...treeAt(folder).map((name) => sizeAt(join(folder, name)))), 40)
          yield* child.signal(signal)
          yield* child.exited()
        })
        const same = Effect.fnUntraced(function* (one: string, other: string) {
          assert.sameMembers(readdirSync(one), ["a.txt", "b.txt", "sub", "world.zip"])
          assert.deepStrictEqual(readdirSync(join(one, "sub")), ["c.txt"])
          assert.strictEqual(yield* sha256(join(one, "world.zip")), yield* sha256(join(other, "world.zip")))
        })
        mkdirSync(local("worlds/sub"), { recursive: true })
        for (const name of ["a.txt", "b.txt", "sub/c.txt"]) writeFileSync(local(`worlds/${name}`), name)
        yield* makeFile(local("worlds/world.zip"), "one", HALF)
        const ours = files("put", "-r", local("worlds"), "lobby:/new")
        const there = join(server, "new")
        yield* stopped(ours, server, "SIGKILL")
        writeFileSync(local("worlds/b.txt"), "B.txt")
        utimesSync(local("worlds/b.txt"), 1, 1)
        yield* stopped(ours, server, "SIGINT")
        const put = yield* ours
        assert.strictEqual(yield* put.exited("60 seconds"), 0, put.output())
        assert.match(
          put.output(),
          /^\/new\/world\.zip continues at .*\n[12] files? (?:is|are) there already\n[23] files up/m
        )
        assert.strictEqual(readFileSync(join(there, "b.txt"), "utf8"), "B.txt")
        yield* same(there, local("worlds"))
        assert.deepStrictEqual(notesIn(notes), [])

        const theirs = files("get", "-r", "lobby:/new", local("copy"))
        yield* stopped(theirs, local("copy"), "SIGKILL")
        writeFileSync(join(there, "a.txt"), "A.txt")
        yield* stopped(theirs, local("copy"), "SIGINT")
        const get = yield* theirs
        assert.strictEqual(yield* get.exited("60 seconds"), 0, get.output())
        assert.match(
          get.output(),
          /^\/new\/world\.zip continues at .*\n[12] files? (?:is|are) there already\n[23] files down/m
        )
        assert.strictEqual(readFileSync(local("copy/a.txt"), "utf8"), "A.txt")
        yield* same(local("copy"), there)
        assert.deepStrictEqual(notesIn(notes), [])
        const again = yield* theirs
        assert.strictEqual(yield* again.exited("60 seconds"), 0, again.output())
        assert.match(again.output(), /^4 files downloaded/)
        yield* same(local("copy/new"), there)
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "the same command leaves the finished ones of several files; of two that go to one path, the last one is there",
    () =>
      Effect.gen(function* () {
        const { files, local, notes, server } = yield* makeScene
        mkdirSync(local("other"))
        for (const name of ["a.txt", "b.txt", "other/a.txt"]) writeFileSync(local(name), name.slice(0, 5))
        utimesSync(local("a.txt"), 1, 1)
        yield* makeFile(local("world.zip"), "one", HALF)
        const names = ["a.txt", "other/a.txt", "b.txt", "world.zip"].map(local)
        const first = yield* files("put", ...names, "lobby:")
        yield* reaches(() => Math.max(...readdirSync(server).map((name) => sizeAt(join(server, name)))), 40)
        yield* first.signal("SIGKILL")
        yield* first.exited()
        const second = yield* files("put", ...names, "lobby:")
        assert.strictEqual(yield* second.exited("60 seconds"), 0, second.output())
        assert.match(second.output(), /^1 file is there already\n3 files uploaded/m)
        assert.strictEqual(readFileSync(join(server, "a.txt"), "utf8"), "other")
        assert.strictEqual(yield* sha256(join(server, "world.zip")), yield* sha256(local("world.zip")))
        assert.deepStrictEqual(notesIn(notes), [])
      }).pipe(Effect.scoped),
    180_000
  )
})
