import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { eventually } from "../../support/eventually.ts"
import { seeded } from "../../support/random.ts"
import { made, newId, restoreOf, worked } from "../backups/scene.ts"
import { filesOf } from "./scene.ts"

const FILES = 1_000
const shared = {
  volumes: [{ name: "s", source: "shared", target: "shared", mode: "rw" as const }],
  files: { volumes: "write" as const }
}

type Scene = Effect.Success<ReturnType<typeof filesOf>>

const countIn = (folder: string) => (existsSync(folder) ? readdirSync(folder).length : 0)

const withWorld = Effect.gen(function* () {
  const scene = yield* filesOf({ far: false }, shared)
  const world = join(scene.folder, "world/region")
  mkdirSync(world, { recursive: true })
  for (let at = 0; at < FILES; at++) writeFileSync(join(world, `f${at}`), "x")
  return { scene, world, before: countIn(world) }
})

/** Begins to move the world to another file system, and returns while its old place is being removed. */
const beginMove = Effect.fnUntraced(function* ({ files, id }: Scene, world: string) {
  const operation_id = newId()
  const changes = [{ kind: "move" as const, from: "/world", path: "/shared/world" }]
  const before = countIn(world)
  yield* files.begin(id, { operation_id, task: { kind: "change", changes } })
  yield* eventually(
    () => countIn(world),
    (count) => count < before
  )
  return operation_id
})

describe("spec 10.5: a change that work on the files interrupts", () => {
  it.live("a move is complete before a restore begins: no later access removes restored files", () =>
    Effect.gen(function* () {
      const { before, scene, world } = yield* withWorld
      const { backup_id, figures } = yield* made(scene)
      const moved = yield* beginMove(scene, world)
      assert.strictEqual((yield* worked(scene, restoreOf(backup_id, figures))).state, "done")
      assert.strictEqual((yield* scene.files.progress(scene.id, moved)).state, "failed")
      assert.include(yield* scene.names("/"), "world")
      assert.strictEqual(countIn(world), before)
    })
  )

  it.live("a reset forgets it: no later access removes files that the server makes", () =>
    Effect.gen(function* () {
      const { before, scene, world } = yield* withWorld
      yield* beginMove(scene, world)
      yield* scene.node.daemon.reset(scene.id)
      yield* eventually(
        scene.node.daemon.status(scene.id),
        (status) => status === "offline" && countIn(world) === before - FILES
      )
      writeFileSync(join(world, "made"), "new")
      yield* scene.names("/")
      assert.strictEqual(countIn(world), before - FILES + 1)
    })
  )

  it.live("a folder that is replaced has its name at every moment, and nothing hidden is left", () =>
    Effect.gen(function* () {
      const random = seeded(1)
      const scene = yield* filesOf({ far: false, instanceFiles: "copy" })
      const { files, folder, id, node } = scene
      for (let tried = 0; tried < 40; tried++) {
        for (const name of ["source", "target"]) {
          mkdirSync(join(folder, name, "in"), { recursive: true })
          writeFileSync(join(folder, name, "in/file"), name)
        }
        const change = { kind: "move", from: "/source", path: "/target", overwrite: "replace" } as const
        const moving = yield* Effect.forkChild(Effect.exit(files.change(id, [change])))
        yield* Effect.repeat(Effect.yieldNow, { times: random.below(300) })
        yield* node.daemon.hold(id, true)
        yield* Fiber.await(moving)
        const names = readdirSync(folder)
        assert.include(names, "target")
        assert.deepStrictEqual(
          names.filter((name) => name.startsWith(".muster-")),
          []
        )
        yield* node.daemon.hold(id, false)
        for (const name of ["source", "target"]) rmSync(join(folder, name), { recursive: true, force: true })
      }
    })
  )
})
