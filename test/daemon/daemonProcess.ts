/** A daemon in its own process, for tests that kill it: `node daemonProcess.ts <data folder>`. */

import { appendFileSync } from "node:fs"
import { flushCompileCache } from "node:module"
import { createInterface } from "node:readline"
import { Effect, Layer, References } from "effect"
import { NodeId, ServerId } from "../../src/contract/domain/Id.ts"
import { NodeDaemon } from "../../src/daemon/NodeDaemon.ts"
import { controlPlane, optionsFor, recorder, specOf } from "./support.ts"

const [, , dataDir = "", away = "", docker_socket = "", node_id = "test-node", isolation = ""] = process.argv
const more = {
  node_id: NodeId.make(node_id),
  allowedMounts: [`${dataDir}/host`],
  ...(isolation === "" ? {} : { isolation: JSON.parse(isolation) }),
  ...(docker_socket === "" ? {} : { docker: { socket: docker_socket, pull: "never" as const } })
}
const notes = { ...recorder(), away: away === "away" }

/** Makes the control plane require a registration and deny knowing the server. */
const forget = (id: ServerId) =>
  Effect.sync(() => {
    notes.unknown = [{ id }]
    notes.forgotten = true
  })

/**
 * Executes `create <options as JSON>`, `remove <id>`, `command <id> <line>`, `forget <id>`, `power <id> <action> <seconds>`,
 * `begin`, `cancel` and `backup <id> <operation> <task as JSON>`, whose `target` is the node by default; prints `ok` or
 * `error ...`.
 */
const execute = (node: NodeDaemon["Service"], line: string) => {
  const [what, named = "", action = "start", seconds = "30"] = line.split(" ")
  const id = ServerId.make(named)
  const task = () => ({
    operation_id: action,
    task: JSON.parse(line.split(" ").slice(3).join(" "))
  })
  const call: Effect.Effect<unknown, unknown> =
    what === "create"
      ? node.daemon.create(specOf(JSON.parse(line.slice("create ".length))))
      : what === "remove"
        ? node.daemon.remove(id)
        : what === "command"
          ? node.daemon.commands(id, [line.slice(`command ${id} `.length)])
          : what === "begin"
            ? node.daemon.files.begin(id, task())
            : what === "cancel"
              ? node.daemon.files.cancel(id, task())
              : what === "backup"
                ? node.daemon.backups.work(id, { ...task(), target: task().task.target ?? { type: "node" } })
                : what === "forget"
                  ? forget(id)
                  : node.daemon.power(
                      id,
                      action === "start" || action === "stop" || action === "pause" ? action : "kill",
                      Number(seconds)
                    )
  return call.pipe(
    Effect.andThen(Effect.sync(() => process.stdout.write("ok\n"))),
    Effect.catch((error) => Effect.sync(() => process.stdout.write(`error ${JSON.stringify(error)}\n`)))
  )
}

const main = Effect.gen(function* () {
  const node = yield* NodeDaemon
  const context = yield* Effect.context()
  createInterface({ input: process.stdin }).on("line", (line) => {
    Effect.runForkWith(context)(execute(node, line))
  })
  process.stdout.write(`up ${process.pid} ${(yield* node.daemon.system).system.isolation?.process}\n`)
  appendFileSync(`${dataDir}/boots`, `${node.boot_id}\n`)
  // A test kills this process.
  flushCompileCache()
  return yield* Effect.never
}).pipe(
  Effect.provide(NodeDaemon.layer(optionsFor(dataDir, more)).pipe(Layer.provide(controlPlane(notes)))),
  Effect.provideService(References.MinimumLogLevel, "None")
)

Effect.runFork(main)
