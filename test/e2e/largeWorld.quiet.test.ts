import { createCipheriv } from "node:crypto"
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Schedule } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { until } from "../support/eventually.ts"
import { alone, connectedNode, type NodeProcess } from "../support/nodes.ts"
import { residentBytes } from "../support/processes.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, create, expectStatus, operationEnd, powered, running } from "../support/servers.ts"

const FILE = 256 * 1024
const FOLDER_FILES = 500
/** 10 GiB; `MUSTER_TEST_WORLD_MIB` makes it smaller. */
const FILES = (Number(process.env.MUSTER_TEST_WORLD_MIB ?? 10 * 1024) * 2 ** 20) / FILE
/** Files that change each second: 2 % of all in a minute. */
const CHANGES = Math.ceil((FILES * 0.02) / 60)

const quiesce = { before: ["save-off", "save-all flush"], until: "got save-all", after: ["save-on"] }
const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer }, extra: { quiesce } })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const KEY = Buffer.alloc(16, "world")
const zeros = Buffer.alloc(FILE / 2)

/** The contents of a file in one of its versions; a half does not compress, as in regions of a world. */
const contentsOf = (n: number, version: number) => {
  const bytes = Buffer.alloc(FILE, "minecraft:stone minecraft:air ")
  const iv = Buffer.alloc(16)
  iv.writeUInt32LE(n)
  iv.writeUInt32LE(version, 4)
  createCipheriv("aes-128-ctr", KEY, iv).update(zeros).copy(bytes)
  return bytes
}
const folderOf = (n: number) => join("world", `region${Math.floor(n / FOLDER_FILES)}`)
const pathOf = (n: number) => join(folderOf(n), `r.${n}.mca`)

/** A world on the disk, and the versions of its files. */
const makeWorld = (folder: string) => {
  const versions = new Uint32Array(FILES)
  const write = (n: number) => writeFileSync(join(folder, pathOf(n)), contentsOf(n, versions[n] ?? 0))
  for (let n = 0; n < FILES; n++) {
    if (n % FOLDER_FILES === 0) mkdirSync(join(folder, folderOf(n)), { recursive: true })
    write(n)
  }
  const change = () => {
    for (let count = 0; count < CHANGES; count++) {
      const n = Math.floor(Math.random() * FILES)
      versions[n] = (versions[n] ?? 0) + 1
      write(n)
    }
  }
  return { change, versions }
}

/** The files that differ from the versions. */
const wrongIn = (folder: string, versions: Uint32Array) => {
  const found = readdirSync(join(folder, "world"), { recursive: true, encoding: "utf8" })
  const names = found.filter((name) => name.endsWith(".mca"))
  const wrong: Array<string> = names.length === FILES ? [] : [`${names.length} files`]
  for (let n = 0; n < FILES; n++)
    if (!readFileSync(join(folder, pathOf(n))).equals(contentsOf(n, versions[n] ?? 0))) wrong.push(pathOf(n))
  return wrong
}

const consoleOf = (folder: string) => readFileSync(join(folder, "..", "console.log"), "utf8").split("\n")

const ended = Effect.fnUntraced(function* (api: Service, operation: string) {
  const end = yield* operationEnd(api, operation, "1800 seconds")
  assert.strictEqual(end.state, "done", end.reason)
})

/** Returns the most memory that a process takes during an effect, in bytes more than before it. */
const mostMemory = Effect.fnUntraced(function* <A, E, R>(
  process: NodeProcess,
  effect: Effect.Effect<A, E, R>
) {
  const { pid = 0 } = process.process
  const before = residentBytes(pid)
  assert.isAbove(before, 0)
  let most = 0
  const look = Effect.sync(() => {
    most = Math.max(most, residentBytes(pid) - before)
  })
  const looking = Effect.repeat(look, Schedule.spaced("200 millis"))
  yield* Effect.raceFirst(effect, Effect.andThen(looking, Effect.never))
  return most
})

const MOST = 100 * 2 ** 20

describe("spec 12: a world that changes while it is backed up", () => {
  it.live(
    "is quiesced, and restored to its server, to another node, in a folder and after deletion, byte for byte",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env } })
        const n1 = yield* connectedNode(api, "n1")
        const n2 = yield* connectedNode(api, "n2")
        const folderOn = (node: NodeProcess, id: string) => join(node.dataDir, "node", "servers", id, "files")
        const server = yield* running(api, "kept", { node_id: "n1" })
        const folder = folderOn(n1, server)
        const world = makeWorld(folder)

        const isSaving = () =>
          consoleOf(folder).findLast((line) => /got save-o/.test(line)) !== "got save-off "
        const changing = yield* Effect.forkScoped(
          Effect.repeat(
            Effect.sync(() => isSaving() && world.change()),
            Schedule.spaced("1 second")
          )
        )
        const before = world.versions.slice()
        yield* until("the world changes", () => !before.every((version, n) => version === world.versions[n]))
        const path = `/api/servers/${server}/backups`
        const begun = yield* expectStatus(api, 202, "POST", path, { body: {} })
        yield* until("the server is held still", () => !isSaving())
        const saved = world.versions.slice()
        const memory = yield* mostMemory(n1, ended(api, begun.json.id))
        yield* until("the server is released", isSaving)
        const [backup] = (yield* expectStatus(api, 200, "GET", path)).json
        assert.strictEqual(backup.consistency, "quiesced")
        const lines = consoleOf(folder).filter((line) => line.startsWith("got "))
        assert.deepStrictEqual(lines, ["got save-off ", "got save-all flush", "got save-on "])
        yield* until(
          "the world changes again",
          () => !saved.every((version, n) => version === world.versions[n])
        )
        assert.isBelow(memory, MOST)

        yield* Fiber.interrupt(changing)
        yield* powered(api, server, "stop")
        yield* becomes(api, server, "offline")
        const scribble = () => writeFileSync(join(folder, pathOf(1)), "scribble")
        const restore = Effect.fnUntraced(function* (body: object) {
          const answer = yield* expectStatus(api, 202, "POST", `/api/servers/${server}/restore`, {
            body: { backup_id: backup.id, safety: false, ...body }
          })
          assert.isBelow(yield* mostMemory(n1, ended(api, answer.json.id)), MOST)
        })
        yield* restore({})
        assert.deepStrictEqual(wrongIn(folder, saved), [])

        rmSync(join(folder, folderOf(0)), { recursive: true })
        mkdirSync(join(folder, folderOf(0)))
        scribble()
        writeFileSync(join(folder, pathOf(0)), "scribble")
        yield* restore({ paths: [`/${folderOf(0)}`] })
        assert.deepStrictEqual(wrongIn(folder, saved), [])

        const restoredOn = Effect.fnUntraced(function* (node_id: string) {
          const id = yield* create(api, "kept", { node_id, from_backup: backup.id })
          const [operation] = (yield* expectStatus(api, 200, "GET", `/api/operations?server_id=${id}`)).json
          yield* ended(api, operation.id)
          return id
        })
        const copy = yield* restoredOn("n2")
        assert.deepStrictEqual(wrongIn(folderOn(n2, copy), saved), [])
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${copy}?purge=true`)

        yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}?purge=true`)
        const again = yield* restoredOn("n1")
        assert.deepStrictEqual(wrongIn(folderOn(n1, again), saved), [])
      }).pipe(Effect.scoped),
    3_600_000
  )
})
