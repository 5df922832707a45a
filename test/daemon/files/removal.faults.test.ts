import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { until } from "../../support/eventually.ts"
import { plain } from "../../support/ids.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { dataFolder, newId, openDaemon, recorder } from "../support.ts"
import { write } from "./scene.ts"

const script = join(import.meta.dirname, "../daemonProcess.ts")

/** Starts a daemon process; kills it with the scope. */
const daemonProcess = Effect.fnUntraced(function* (dataDir: string) {
  const child: ChildProcess = yield* Effect.acquireRelease(
    Effect.sync(() => spawn(process.execPath, [script, dataDir], { stdio: ["pipe", "pipe", "inherit"] })),
    (process) => Effect.sync(() => process.kill("SIGKILL"))
  )
  let output = ""
  child.stdout?.on("data", (bytes) => {
    output += String(bytes)
  })
  yield* until("the daemon is up", () => output.startsWith("up "))
  const send = (line: string) => Effect.sync(() => child.stdin?.write(`${line}\n`))
  const ask = Effect.fnUntraced(function* (line: string) {
    const before = output.length
    yield* send(line)
    yield* until(`an answer to ${line}`, () => output.length > before)
    assert.strictEqual(output.slice(before), "ok\n")
  })
  const kill = Effect.gen(function* () {
    child.kill("SIGKILL")
    yield* until("the daemon is dead", () => child.exitCode !== null || child.signalCode !== null)
  })
  return { ask, kill, send }
})

const phaseOf = (dataDir: string, id: ServerId): string => {
  const path = join(dataDir, "servers", id, "server.json")
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).install.phase : ""
}

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
        const daemon = plain(yield* daemonProcess(dataDir))
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
        yield* until("installed", () => phaseOf(dataDir, id) === "ready")
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
      yield* until("installed", () => phaseOf(dataDir, id) === "ready")
      yield* first.ask(`power ${id} start`)
      yield* first.kill
      const { daemon } = yield* openDaemon(dataDir, recorder())
      const running = Effect.map(daemon.status(id), (status) => status === "running")
      yield* Effect.repeat(running, { until: (up) => up })
      yield* daemon.commands(id, ["hello"])
      const files = join(dataDir, "servers", id, "files")
      yield* until("the line is written", () => existsSync(join(files, "own")))
      assert.strictEqual(readFileSync(join(dataDir, "volumes/s/input"), "utf8"), "hello\n")
      yield* daemon.power(id, "kill", 0)
      const offline = Effect.map(daemon.status(id), (status) => status === "offline")
      yield* Effect.repeat(offline, { until: (down) => down })
      yield* daemon.power(id, "start", 30)
      assert.strictEqual(readFileSync(join(files, "own"), "utf8"), "own\n")
      yield* daemon.remove(id)
    }).pipe(Effect.scoped)
  )
})
