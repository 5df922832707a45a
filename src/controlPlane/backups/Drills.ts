/** Drills of backups: servers that show that a backup can be restored (spec 12.11); `drillRunner` does their work. */
import { Context, Effect, Layer } from "effect"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import type { DrillRequest } from "../../contract/domain/Backup.ts"
import { Unavailable } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { hasEnded } from "../../contract/domain/Operation.ts"
import { backoff } from "../../shared/work/backoff.ts"
import { makeWorkQueue, type StepOutcome } from "../../shared/work/WorkQueue.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { CurrentPrincipal, requireRight } from "../http/Principal.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import type { NodeCallError } from "../servers/state/nodeCalls.ts"
import { followChanges } from "../store/journal/Journal.ts"
import { Leadership } from "../store/Leadership.ts"
import { OperationRepo } from "../store/repos/OperationRepo.ts"
import { Store } from "../store/Store.ts"
import { Backups } from "./Backups.ts"

/** Seconds after which the server of a drill is deleted in any case: 24 h. */
const LONGEST = 24 * 3600
const LONGEST_NAME = 64
const KIND = "backup.drill"
/** Drills that the next leader looks at: more than can be unfinished. */
const LATEST = 2_000

export class Drills extends Context.Service<Drills>()("muster/backups/Drills", {
  make: Effect.gen(function* () {
    const backups = yield* Backups
    const blueprints = yield* BlueprintStore
    const operations = yield* OperationRepo
    const servers = yield* ServerManager
    const store = yield* Store

    /** The overrides of the server of a drill. They take precedence over those of the backup. */
    const overridesFor = Effect.fnUntraced(function* (blueprint_id: string) {
      const { schedules = [] } = (yield* blueprints.whole).blueprints.get(blueprint_id) ?? {}
      return {
        // A server that is not saved would be gone after a crash.
        save: true,
        run: "unless_stopped",
        restart: { on_crash: false },
        ...(schedules.length === 0
          ? {}
          : { schedules: Object.fromEntries(schedules.map(({ name }) => [name, null])) })
      } as const
    })

    return {
      /**
       * Creates the server of a drill, with the operation that restores, starts and then deletes it, in one write.
       * @error NotFound    there is no such backup, blueprint or node
       * @error Conflict    the backup is not done
       * @error Forbidden   the key may not create servers, or its quota is used up
       * @error Unavailable no node fits
       */
      drill: Effect.fn("Drills.drill")(function* (id: string, { node_id }: DrillRequest) {
        yield* requireRight("create")
        const backup = yield* backups.finished(id)
        const caller = yield* CurrentPrincipal
        const created = yield* servers.create({
          blueprint_id: backup.blueprint_id,
          ...(node_id === undefined ? {} : { node_id }),
          overrides: yield* overridesFor(backup.blueprint_id),
          name: `drill of ${backup.server_name ?? backup.server_id}`.slice(0, LONGEST_NAME).trim(),
          // Labels of the server would make selectors and proxies find the drill.
          labels: caller?.restriction?.labels ?? {},
          start: false,
          expires_in: LONGEST,
          from_backup: id,
          drill: true
        })
        yield* describeAudit({ id, changes: [`server ${created.id}`] })
        const page = { server_id: created.id, kind: KIND, limit: 1 }
        const [operation] = (yield* store.read(operations.list(page))) ?? []
        return (
          operation ??
          (yield* new Unavailable({ detail: `the operation of the drill was removed: ${created.id}` }))
        )
      })
    }
  })
}) {
  static readonly layer = Layer.effect(Drills, Drills.make)
}

/** Deletes the servers of drills whose operations have ended, with their files, on the leader. */
export const drillRemovals = Layer.effectDiscard(
  Effect.gen(function* () {
    const index = yield* ServerIndex
    const leadership = yield* Leadership
    const operations = yield* OperationRepo
    const servers = yield* ServerManager
    const store = yield* Store

    const drills = (page: { readonly limit: number; readonly server_id?: ServerId }) =>
      Effect.map(store.read(operations.list({ ...page, kind: KIND })), (found = []) =>
        found.filter(({ server_id, state }) => hasEnded(state) && index.get(server_id) !== undefined)
      )

    const queue = yield* makeWorkQueue({
      name: "removal of a drill",
      fields: (server_id: ServerId) => ({ server_id }),
      step: Effect.fnUntraced(function* (server_id: ServerId): Effect.fn.Return<StepOutcome, NodeCallError> {
        const [ended] = yield* drills({ limit: 1, server_id })
        if (ended === undefined) return "done"
        // With `force`, a node that is away deletes the files later.
        const removed = servers.remove(server_id, { force: true, purge: true })
        yield* Effect.catchTag(removed, "NotFound", () => Effect.void)
        return "done"
      }),
      backoff: backoff({ first: "1 second", longest: "1 minute" }),
      leadership,
      resume: Effect.map(drills({ limit: LATEST }), (ended) => ended.map(({ server_id }) => server_id))
    })
    yield* followChanges("controllers", (change) => {
      if (change.topic !== "server:operation") return
      const { kind, server_id, state } = change.payload.operation
      if (kind === KIND && hasEnded(state)) queue.add(server_id)
    })
  })
)
