import { readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Quiesce } from "../../../src/contract/domain/Quiesce.ts"
import { until } from "../../support/eventually.ts"
import { endLeftovers } from "../../support/processes.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { daemonProcess } from "../daemonChild.ts"
import { newId, specOf } from "../support.ts"
import { commands, HOLES, quiescing, quietProcess, slow, watched } from "./quietScene.ts"

type Scene = Effect.Success<typeof begun>
type Daemon = Effect.Success<ReturnType<typeof daemonProcess>>

/** A daemon with a running server, whose console and state are watched. */
const begun = Effect.gen(function* () {
  const dataDir = yield* temporaryFolder
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  const daemon = yield* daemonProcess(dataDir)
  const id = newId()
  const definition = { ...specOf().definition, process: quietProcess }
  const folder = join(dataDir, "servers", id)
  const scene = { dataDir, id, folder, ...watched(folder) }
  yield* daemon.ask(`create ${JSON.stringify({ id, definition, process: quietProcess })}`)
  yield* until("the server is installed", () => scene.state().install.phase === "ready")
  yield* daemon.ask(`power ${id} start`)
  yield* until("the server runs", () => scene.state().status === "running")
  return { ...scene, daemon }
})

const backUp = (daemon: Daemon, id: string, quiesce: Quiesce) =>
  daemon.ask(`backup ${id} operation1 ${JSON.stringify(quiescing(quiesce))}`)

const printed = ({ folder }: Scene, text: string) =>
  readFileSync(join(folder, "console.log"), "utf8").includes(text)

/** Kills the daemon, and waits until the next one has released the server, which then answers. */
const released = Effect.fnUntraced(function* (scene: Scene, meanwhile = () => {}) {
  yield* scene.daemon.kill
  assert.property(scene.state(), "quiesced")
  meanwhile()
  const next = yield* daemonProcess(scene.dataDir)
  yield* until("nothing holds the server", () => !("quiesced" in scene.state()))
  return next
})

const answers = Effect.fnUntraced(function* ({ got, id, state }: Scene, daemon: Daemon) {
  yield* until("the server runs", () => state().status === "running")
  yield* daemon.ask(`command ${id} hello`)
  yield* until("the server reads its console", () => got().includes("hello"))
})

/** The moments at which the daemon is killed, by the way in which the server holds still. */
const moments: ReadonlyArray<{
  readonly name: string
  readonly quiesce: Quiesce
  readonly prepare: (folder: string) => void
  readonly isReached: (scene: Scene) => boolean
}> = [
  {
    name: "before the server has said that its files are whole",
    quiesce: commands,
    prepare: (files) => writeFileSync(join(files, "mute"), ""),
    isReached: ({ got }) => got().includes("save-off")
  },
  {
    name: "while the files of a server that has saved are read",
    quiesce: commands,
    prepare: slow,
    isReached: (scene) => printed(scene, "Saved the game")
  },
  {
    name: "as soon as the state has that the server is held still",
    quiesce: commands,
    prepare: slow,
    isReached: ({ state }) => "quiesced" in state()
  },
  {
    name: "while the server is frozen",
    quiesce: { by: "pause" },
    prepare: slow,
    isReached: ({ state }) => "quiesced" in state()
  }
]

describe("spec 12.10: the daemon is killed", () => {
  for (const { isReached, name, prepare, quiesce } of moments)
    it.live(`${name}: the next one releases the server`, () =>
      Effect.gen(function* () {
        const scene = yield* begun
        prepare(join(scene.folder, "files"))
        yield* backUp(scene.daemon, scene.id, quiesce)
        yield* until("the moment", () => isReached(scene))
        const next = yield* released(scene)
        yield* answers(scene, next)
        if (quiesce.by === "commands") assert.strictEqual(scene.got().at(-2), "save-on")
        else assert.notInclude(scene.got(), "save-on")
      })
    )

  it.live("while a server stops for a backup: the next one starts it again", () =>
    Effect.gen(function* () {
      const scene = yield* begun
      const files = join(scene.folder, "files")
      writeFileSync(join(files, "slow"), "")
      yield* backUp(scene.daemon, scene.id, { by: "stop" })
      yield* until("the server stops", () => scene.got().includes("stop"))
      const next = yield* released(scene)
      assert.strictEqual(scene.state().status, "stopping")
      rmSync(join(files, "slow"))
      yield* answers(scene, next)
    })
  )

  it.live("while the files of a stopped server are read: the next one starts it again", () =>
    Effect.gen(function* () {
      const scene = yield* begun
      slow(join(scene.folder, "files"), 4 * HOLES)
      yield* backUp(scene.daemon, scene.id, { by: "stop" })
      yield* until("the server has stopped", () => scene.state().status === "offline")
      yield* answers(scene, yield* released(scene))
    })
  )

  it.live("a server that a caller has stopped meanwhile is not started", () =>
    Effect.gen(function* () {
      const scene = yield* begun
      slow(join(scene.folder, "files"), 4 * HOLES)
      yield* backUp(scene.daemon, scene.id, { by: "stop" })
      yield* until("the server has stopped", () => scene.state().status === "offline")
      yield* scene.daemon.ask(`power ${scene.id} stop`)
      yield* scene.daemon.kill
      yield* daemonProcess(scene.dataDir)
      assert.notProperty(scene.state(), "quiesced")
      assert.deepInclude(scene.state(), { status: "offline", start_again: false })
      assert.notProperty(scene.state(), "waiting")
    })
  )

  it.live("a process that ended meanwhile gets no line, and neither does the next one", () =>
    Effect.gen(function* () {
      const scene = yield* begun
      slow(join(scene.folder, "files"), 4 * HOLES)
      yield* backUp(scene.daemon, scene.id, commands)
      yield* until("the server has saved", () => printed(scene, "Saved the game"))
      const { pid } = JSON.parse(readFileSync(join(scene.folder, "run.json"), "utf8"))
      const next = yield* released(scene, () => process.kill(pid, "SIGKILL"))
      yield* until("the server is offline or runs", () => scene.state().status !== "stopping")
      if (scene.state().status === "offline") yield* next.ask(`power ${scene.id} start`)
      yield* answers(scene, next)
      assert.notInclude(scene.got(), "save-on")
    })
  )
})
