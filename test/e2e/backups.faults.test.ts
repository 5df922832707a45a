import { randomBytes } from "node:crypto"
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../support/eventually.ts"
import { killable } from "../support/killable.ts"
import { expectStatus, installed } from "../support/servers.ts"

const FILES = 60
const BYTES = 3_000_000

/** Files whose first byte tells which tree they are of; their contents cannot be compressed. */
const fill = (folder: string, tree: "a" | "b") => {
  rmSync(join(folder, "world"), { recursive: true, force: true })
  mkdirSync(join(folder, "world"))
  for (let n = 0; n < FILES; n++) {
    const bytes = randomBytes(BYTES)
    bytes.write(tree)
    writeFileSync(join(folder, "world", `${tree}${n}`), bytes)
  }
}

/** The trees of which files are there, with the number of files. */
const treesIn = (folder: string) => {
  const found = existsSync(join(folder, "world")) ? readdirSync(join(folder, "world")) : []
  const trees = found.map((name) => {
    const bytes = readFileSync(join(folder, "world", name))
    return bytes.length === BYTES ? bytes.toString("latin1", 0, 1) : "broken"
  })
  return { trees: [...new Set(trees)].toSorted(), files: found.length }
}

type Scene = Effect.Success<typeof killable>
type Running = Effect.Success<Scene["start"]>

interface Operation {
  readonly state: string
  readonly reason?: string
  readonly progress?: { readonly done: number }
}

const read = (api: Running, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/operations/${id}`), ({ json }): Operation => json)

const hasEnded = ({ state }: Operation) => state !== "queued" && state !== "running"

/** Kills the service during an operation, each time after it has got further, and returns the operation at its end. */
const killedDuring = Effect.fnUntraced(function* (
  { start }: Scene,
  first: Running,
  id: string,
  onKilled: () => void
) {
  let service = first
  for (const share of [0, 0.5, 0.9]) {
    const { state } = yield* eventually(
      read(service, id),
      (now) => hasEnded(now) || (now.progress?.done ?? 0) > share * FILES * BYTES
    )
    if (state !== "running") break
    yield* service.kill
    onKilled()
    service = yield* start
  }
  return { service, end: yield* eventually(read(service, id), hasEnded) }
})

/** Whether an object is of the base of a backup of the kind `written` (spec 12.12). */
const isOfBase = (name: string) => /^base-[0-9a-f]{64}\//.test(name)

for (const kind of ["full", "written"] as const)
  describe(`spec 12.4: a backup of the kind ${kind} whose service and daemon are killed`, () => {
    it.live(
      "is made once, with one manifest, and no part of another attempt stays",
      () =>
        Effect.gen(function* () {
          const scene = yield* killable
          const first = yield* scene.start
          const server = yield* installed(first, "kept")
          fill(join(scene.dataDir, "node", "servers", server, "files"), "a")
          const path = `/api/servers/${server}/backups`
          const begun = yield* expectStatus(first, 202, "POST", path, { body: { kind } })
          const { end, service } = yield* killedDuring(scene, first, begun.json.id, () => {})
          assert.strictEqual(end.state, "done", end.reason)
          const [backup, ...others] = (yield* expectStatus(service, 200, "GET", path)).json
          assert.deepStrictEqual(others, [])
          const stored = readdirSync(join(scene.dataDir, "node", "backups"), {
            recursive: true,
            encoding: "utf8"
          })
          const objects = stored.filter((name) => name.includes("/"))
          assert.isTrue(
            objects.every((name) => name.startsWith(`${backup.id}/`) || isOfBase(name)),
            objects.join()
          )
          // The base was stored before the first kill, and is one however often the backup begins.
          assert.lengthOf(objects.filter(isOfBase), kind === "written" ? 3 : 0)
          assert.lengthOf(
            objects.filter((name) => name.endsWith("manifest.json") && !isOfBase(name)),
            1
          )
          assert.deepStrictEqual(
            objects.filter((name) => name.endsWith(".tmp")),
            []
          )
          const bytes = objects
            .filter((name) => name.includes("/part-"))
            .reduce((sum, name) => sum + readFileSync(join(scene.dataDir, "node", "backups", name)).length, 0)
          assert.strictEqual(bytes, backup.stored_bytes)
          const verified = yield* expectStatus(service, 202, "POST", `/api/backups/${backup.id}/verify`)
          assert.strictEqual((yield* eventually(read(service, verified.json.id), hasEnded)).state, "done")
        }).pipe(Effect.scoped),
      300_000
    )
  })

for (const [what, part] of [
  ["all files", {}],
  ["a folder", { paths: ["/world"] }]
] as const)
  describe(`spec 12.5: a restore of ${what} whose service and daemon are killed`, () => {
    it.live(
      "leaves the old files until it is complete, never a mix, and is completed by the next service",
      () =>
        Effect.gen(function* () {
          const scene = yield* killable
          const first = yield* scene.start
          const server = yield* installed(first, "kept")
          const folder = join(scene.dataDir, "node", "servers", server, "files")
          fill(folder, "a")
          const headers = { authorization: `Bearer ${first.key}`, prefer: "wait=60" }
          const path = `/api/servers/${server}`
          yield* expectStatus(first, 202, "POST", `${path}/backups`, { body: {}, headers })
          const [backup] = (yield* expectStatus(first, 200, "GET", `${path}/backups`)).json
          fill(folder, "b")
          const begun = yield* expectStatus(first, 202, "POST", `${path}/restore`, {
            body: { backup_id: backup.id, safety: false, ...part }
          })
          let kills = 0
          const { end } = yield* killedDuring(scene, first, begun.json.id, () => {
            kills += 1
            const { files, trees } = treesIn(folder)
            // Between the two renames of the swap, there is no folder.
            if (files > 0) assert.deepStrictEqual([files, trees.length], [FILES, 1], trees.join())
          })
          assert.isAbove(kills, 0)
          assert.strictEqual(end.state, "done", end.reason)
          assert.deepStrictEqual(treesIn(folder), { trees: ["a"], files: FILES })
          assert.deepStrictEqual(
            readdirSync(folder).filter((name) => name.startsWith(".muster")),
            []
          )
          const left = readdirSync(join(folder, "..")).filter((name) => /building|old|ready/.test(name))
          assert.deepStrictEqual(left, [])
        }).pipe(Effect.scoped),
      300_000
    )
  })
