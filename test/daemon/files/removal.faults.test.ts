import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { until } from "../../support/eventually.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { dataFolder, newId, openDaemon, recorder } from "../support.ts"
import { write } from "./scene.ts"

describe("spec 9.6: daemon killed: files", () => {
  it.live("an interrupted removal keeps shared files, and is completed later", () =>
    Effect.gen(function* () {
      const dataDir = yield* dataFolder
      const names = Array.from({ length: 200 }, (_, index) => `f${index}`)
      const contents = Object.fromEntries(names.map((name) => [name, name]))
      for (const root of ["volumes/shared", "host/maps", "volumes/template"]) {
        write(join(dataDir, root), contents)
      }
      const ids: Array<string> = []
      for (const delay of [0, 3, 6, 10, 15, 22]) {
        const daemon = yield* daemonProcess(dataDir)
        const id = newId()
        ids.push(id)
        const definition = {
          volumes: [
            { name: "s", source: "shared", target: "deep/shared", mode: "rw" },
            { name: "t", source: "template", target: "world", mode: "cow" }
          ],
          mounts: [{ source: join(dataDir, "host/maps"), target: "maps", mode: "rw" }]
        }
        yield* daemon.ask(`create ${JSON.stringify({ id, definition })}`)
        yield* until("installed", () => stateOf(dataDir, id).install?.phase === "ready")
        yield* daemon.send(`remove ${id}`)
        yield* Effect.sleep(delay)
        yield* daemon.kill
      }
      // The next start or the next removal deletes the rest.
      const { close, daemon } = yield* openDaemon(dataDir, recorder(), {
        allowedMounts: [join(dataDir, "host")]
      })
      yield* Effect.forEach(ids, (id) => daemon.remove(ServerId.make(id)))
      yield* until("their trees are gone", () => readdirSync(join(dataDir, "servers")).length === 0)
      yield* close
      assert.deepStrictEqual(mountsBelow(dataDir), [])
      for (const root of ["volumes/shared", "host/maps", "volumes/template"]) {
        assert.deepStrictEqual(readdirSync(join(dataDir, root)).sort(), names.toSorted(), root)
        for (const name of names) assert.strictEqual(readFileSync(join(dataDir, root, name), "utf8"), name)
      }
    }).pipe(Effect.scoped)
  )

  it.live("a running server keeps its files, also for its next run", () =>
    Effect.gen(function* () {
      const dataDir = yield* dataFolder
      mkdirSync(join(dataDir, "volumes/s"), { recursive: true })
      const first = yield* daemonProcess(dataDir)
      const id = newId()
      const definition = { volumes: [{ name: "s", source: "s", target: "s", mode: "rw" }] }
      const invocation = `sh -c 'echo ready; while read -r line; do echo "$line" > s/input; echo own > own; done'`
      yield* first.ask(`create ${JSON.stringify({ id, definition, process: { invocation } })}`)
      yield* until("installed", () => stateOf(dataDir, id).install?.phase === "ready")
      yield* first.ask(`power ${id} start`)
      yield* first.kill
      const { daemon } = yield* openDaemon(dataDir, recorder())
      const is = (wanted: string) =>
        until(
          `the server is ${wanted}`,
          Effect.map(daemon.status(id), (status) => status === wanted)
        )
      yield* is("running")
      yield* daemon.commands(id, ["hello"])
      const files = join(dataDir, "servers", id, "files")
      yield* until("the line is written", () => existsSync(join(files, "own")))
      assert.strictEqual(readFileSync(join(dataDir, "volumes/s/input"), "utf8"), "hello\n")
      yield* daemon.power(id, "kill", 0)
      yield* is("offline")
      yield* daemon.power(id, "start", 30)
      assert.strictEqual(readFileSync(join(files, "own"), "utf8"), "own\n")
      yield* daemon.remove(id)
    }).pipe(Effect.scoped)
  )
})
