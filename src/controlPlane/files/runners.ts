/** The work of the leader on files: their tasks, and uploads of ended keys. */
import { Clock, Effect, Layer, Schedule } from "effect"
import { FileTask } from "../../contract/domain/FileTask.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { MOST_OWNERS } from "../../contract/nodeApi/NodeUploadsApi.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import {
  asked,
  makeReadTask,
  OperationFailed,
  type OperationRunner,
  OperationRunners,
  untilLook
} from "../operations/OperationRunners.ts"
import { Leadership } from "../store/Leadership.ts"

const EVERY = "10 seconds"
/** Time in which the last requests of a key end at every replica, in ms. */
const SETTLED = 5_000
/** Nodes expire each upload a day after its last byte, in ms. */
const LONGEST = 25 * 3600 * 1000
/** Nodes that are called at a time. */
const AT_ONCE = 8

/** The work of one term of the leader: one call for each node and key. A node that is away is called later. */
const makeRounds = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const keys = yield* ApiKeys
  const done = new Map<NodeId, ReadonlySet<string>>()

  const removeOn = Effect.fnUntraced(
    function* (id: NodeId, ended: ReadonlyArray<string>) {
      const known = done.get(id)
      const owners = ended.filter((key) => known?.has(key) !== true).slice(0, MOST_OWNERS)
      if (owners.length === 0) return
      const { files } = yield* daemons.of(id)
      yield* files.uploads.endOf(owners)
      const old = ended.filter((key) => known?.has(key) === true)
      done.set(id, new Set([...old, ...owners]))
    },
    (removed, id) =>
      Effect.catch(removed, (error) =>
        Effect.annotateLogs(Effect.logDebug(`uploads of ended keys were not removed: ${error._tag}`), {
          node_id: id
        })
      )
  )

  const round = Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const ended = yield* keys.endedBetween(now - LONGEST, now - SETTLED)
    const nodes = [...fleet.nodes].filter(({ connected }) => connected)
    yield* Effect.forEach(nodes, ({ id }) => removeOn(id, ended), { concurrency: AT_ONCE, discard: true })
  })
  return round.pipe(
    Effect.catch(({ detail }) => Effect.logDebug(`the keys of uploads cannot be read: ${detail}`)),
    Effect.repeat(Schedule.spaced(EVERY))
  )
})

/** Removes the unfinished uploads of keys that are revoked or have expired, on the leader (spec 10.8). */
export const EndedUploads = Layer.effectDiscard(
  Effect.flatMap(Leadership, ({ whileLeader }) => whileLeader(Effect.flatMap(makeRounds, Effect.asVoid)))
)

const readTask = makeReadTask(FileTask)

/** Registers the runners of tasks on files of servers: their nodes do the work (spec 11.4). */
export const FileTaskRunners = Layer.effectDiscard(
  Effect.gen(function* () {
    const daemons = yield* DaemonClient
    const { register } = yield* OperationRunners

    const callOf = Effect.fnUntraced(function* (operation: OperationRecord, { node_id }: ServerRecord) {
      const { files } = yield* daemons.of(node_id)
      return { files, request: { operation_id: operation.id, task: yield* readTask(operation) } }
    })

    const runner: OperationRunner = {
      run: Effect.fnUntraced(function* (operation, server, report) {
        const { files, request } = yield* callOf(operation, server)
        const begin = asked(files.begin(server.id, request))
        let now = yield* begin
        for (let looks = 0; ; looks++) {
          yield* report(now.progress)
          switch (now.state) {
            case "done":
              return
            case "failed":
              return yield* new OperationFailed({ reason: now.reason ?? "the node gives no reason" })
            case "cancelled":
              return yield* new OperationFailed({ reason: "the node has cancelled it" })
            case "interrupted":
              now = yield* begin
              break
            case "running":
              yield* untilLook(looks)
              now = yield* asked(files.progress(server.id, operation.id))
          }
        }
      }),
      cancel: Effect.fnUntraced(function* (operation, server) {
        const { files, request } = yield* callOf(operation, server)
        yield* asked(files.cancel(server.id, request))
        const state = yield* asked(files.progress(server.id, operation.id)).pipe(
          Effect.map((now) => now.state),
          Effect.catchTag("OperationFailed", () => Effect.succeed("cancelled" as const))
        )
        return state === "done" ? null : undefined
      })
    }
    register("files.change", runner)
    register("files.unpack", runner)
    register("files.pack", runner)
  })
)
