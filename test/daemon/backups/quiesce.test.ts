import { existsSync, rmSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Quiesce } from "../../../src/contract/domain/Quiesce.ts"
import type { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import { eventually, until } from "../../support/eventually.ts"
import { filesOf, places, put } from "../access/scene.ts"
import { specOf } from "../support.ts"
import { commands, quiescing, quietProcess, runningQuiet, slow, slowly } from "./quietScene.ts"
import { here, newId, objectsOf, worked } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

const running = (definition: Partial<ServerDefinition> = {}) =>
  runningQuiet({ ...place, ...slowly }, definition)

/** Begins a backup of a server, and waits until its files are read. */
const copying = Effect.fnUntraced(function* (
  { backups, folder, id }: Effect.Success<ReturnType<typeof running>>,
  quiesce: Quiesce
) {
  slow(folder)
  const request = { operation_id: newId(), task: quiescing(quiesce), target: here }
  yield* eventually(backups.work(id, request), ({ progress }) => progress.done > 0)
  const end = eventually(backups.work(id, request), ({ state }) => state !== "running")
  return { request, end }
})

describe("spec 12.10: a server whose software has quiesce", () => {
  it.live("gets the commands in order, and the last ones after its files were read", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { got, state } = scene
      const { end } = yield* copying(scene, commands)
      assert.deepStrictEqual(got(), ["save-off", "save-all flush"])
      assert.deepInclude(state().quiesced, { by: "commands", after: ["save-on"] })
      const { figures } = yield* end
      assert.strictEqual(figures?.consistency, "quiesced")
      assert.isAbove(figures?.quiesced_ms ?? 0, 0)
      yield* until("the last command is there", () => got().length === 3)
      assert.deepStrictEqual(got(), ["save-off", "save-all flush", "save-on"])
      assert.notProperty(state(), "quiesced")
    })
  )

  it.live("gets no command while it is offline", () =>
    Effect.gen(function* () {
      const scene = yield* filesOf(place, { process: quietProcess })
      const { figures } = yield* worked(scene, quiescing(commands))
      assert.strictEqual(figures?.consistency, "stopped")
      assert.notProperty(figures, "quiesced_ms")
    })
  )

  for (const on_failure of ["continue", "fail"] as const)
    it.live(`without the line of output in time, the backup ends as on_failure says: ${on_failure}`, () =>
      Effect.gen(function* () {
        const scene = yield* running()
        put(scene.folder, "mute", "")
        const end = yield* worked(scene, quiescing({ ...commands, timeout: 1, on_failure }))
        yield* until("the last command is there", () => scene.got().at(-1) === "save-on")
        if (on_failure === "continue") {
          assert.strictEqual(end.figures?.consistency, "crash")
          assert.notProperty(end.figures, "quiesced_ms")
        } else {
          assert.deepInclude(end, {
            state: "failed",
            reason: 'the server did not print "Saved the game" within 1 s of the commands of quiesce'
          })
          assert.deepStrictEqual(objectsOf(scene), [])
        }
      })
    )

  it.live("a part of a line that is longer than 8 KiB is not taken for the line of output", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      put(scene.folder, "mute", `${"x".repeat(8 * 1024)}Saved the game\n`)
      const rule = { ...commands, until: "regex:^Saved the game$", timeout: 1 }
      const { figures } = yield* worked(scene, quiescing(rule))
      assert.strictEqual(figures?.consistency, "crash")
    })
  )

  it.live("gets the last commands from a cancelled backup, too", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { request } = yield* copying(scene, commands)
      yield* scene.backups.cancel(scene.id, request)
      yield* until("the last command is there", () => scene.got().at(-1) === "save-on")
      assert.notProperty(scene.state(), "quiesced")
    })
  )

  it.live("that is restarted meanwhile is not quiesced, and gets no command afterwards", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { end } = yield* copying(scene, commands)
      yield* scene.node.daemon.power(scene.id, "restart", 30)
      assert.strictEqual((yield* end).figures?.consistency, "crash")
      assert.notInclude(scene.got(), "save-on")
    })
  )
})

describe("spec 12.10: a removal", () => {
  for (const quiesce of [commands, { by: "pause" }, { by: "stop" }] as const)
    it.live(`ends a server that holds still (${quiesce.by}), and its backup`, () =>
      Effect.gen(function* () {
        const scene = yield* running()
        const { end } = yield* copying(scene, quiesce)
        yield* scene.node.daemon.remove(scene.id)
        assert.strictEqual((yield* end).state, "failed")
      })
    )
})

describe("spec 12.10: pause", () => {
  it.live("freezes the server while its files are read, and thaws it", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { got, id, node } = scene
      const { end } = yield* copying(scene, { by: "pause" })
      yield* node.daemon.commands(id, ["hello"])
      assert.deepStrictEqual(got(), [])
      assert.strictEqual((yield* end).figures?.consistency, "paused")
      yield* until("the server reads its console", () => got().includes("hello"))
      assert.strictEqual(node.lastStatus(id), "running")
    })
  )

  it.live("a frozen server that a caller stops is thawed, and stops", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { end } = yield* copying(scene, { by: "pause" })
      yield* scene.node.daemon.power(scene.id, "stop", 30, "a caller")
      yield* until("the server has stopped", () => scene.node.lastStatus(scene.id) === "offline")
      assert.include(scene.got(), "stop")
      assert.strictEqual((yield* end).figures?.consistency, "crash")
    })
  )
})

describe("spec 12.10: a definition that waits for the stop of a server", () => {
  it.live("is taken after the copy, although a caller has stopped the server before", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { folder, id, node } = scene
      const later = specOf({
        install: { script: "echo later > later.txt" },
        definition: { process: quietProcess }
      })
      yield* node.daemon.create({ ...later, id, defined_at: 2 })
      const { end } = yield* copying(scene, { by: "pause" })
      yield* node.daemon.power(id, "stop", 30, "a caller")
      yield* until("the server has stopped", () => node.lastStatus(id) === "offline")
      const { figures, reason } = yield* end
      assert.strictEqual(figures?.consistency, "crash", reason)
      yield* until("the definition is taken", () => existsSync(join(folder, "later.txt")))
    })
  )
})

describe("spec 12.10: stop", () => {
  it.live("stops the server for the copy, and starts it again", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { id, node } = scene
      const { end } = yield* copying(scene, { by: "stop" })
      assert.strictEqual(node.lastStatus(id), "offline")
      const { figures } = yield* end
      assert.strictEqual(figures?.consistency, "stopped")
      assert.isAbove(figures?.quiesced_ms ?? 0, 0)
      yield* until("the server runs again", () => node.lastStatus(id) === "running")
      assert.notProperty(scene.state(), "quiesced")
    })
  )

  it.live("delays the start of a server that restarts until its files were read", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { backups, folder, id, node, state } = scene
      put(folder, "slow", "")
      slow(folder)
      yield* node.daemon.power(id, "restart", 60)
      yield* until("the server stops", () => state().status === "stopping")
      const request = { operation_id: newId(), task: quiescing({ by: "stop" }), target: here }
      yield* backups.work(id, request)
      yield* until("the server is held", () => "quiesced" in state())
      rmSync(join(folder, "slow"))
      const { figures } = yield* eventually(backups.work(id, request), (work) => work.state !== "running")
      assert.strictEqual(figures?.consistency, "stopped")
      yield* until("the server runs again", () => node.lastStatus(id) === "running")
    })
  )

  it.live("a caller's stop meanwhile holds: the server is not started", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { id, node } = scene
      const { end } = yield* copying(scene, { by: "stop" })
      yield* node.daemon.power(id, "stop", 30, "a caller")
      assert.strictEqual((yield* end).state, "done")
      yield* until("nothing holds the server", () => !("quiesced" in scene.state()))
      assert.deepInclude(scene.state(), { status: "offline", start_again: false, stopped_by: "a caller" })
      assert.notProperty(scene.state(), "waiting")
    })
  )

  it.live("a backup that is cancelled while the server stops has it started again", () =>
    Effect.gen(function* () {
      const scene = yield* running()
      const { backups, folder, id, node, state } = scene
      put(folder, "slow", "")
      const request = { operation_id: newId(), task: quiescing({ by: "stop" }), target: here }
      yield* backups.work(id, request)
      yield* until("the server stops", () => state().status === "stopping")
      yield* backups.cancel(id, request)
      const before = node.statuses(id).length
      rmSync(join(folder, "slow"))
      yield* until("the server runs again", () => node.statuses(id).slice(before).includes("running"))
    })
  )

  it.live("a server that is not saved is not stopped, because a stop deletes it", () =>
    Effect.gen(function* () {
      const scene = yield* running({ save: false })
      const { reason, state } = yield* worked(scene, quiescing({ by: "stop" }))
      assert.deepEqual([state, reason], ["failed", "the server is not saved: a stop deletes it"])
      assert.strictEqual(scene.node.lastStatus(scene.id), "running")
    })
  )
})
