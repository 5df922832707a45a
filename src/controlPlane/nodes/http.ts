import { Clock, Effect } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import type { DrainRequest } from "../../contract/api/NodesGroup.ts"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { fieldNames } from "../../contract/domain/compareDefinitions.ts"
import type { DrainChoices } from "../../contract/domain/Drain.ts"
import { Conflict, Forbidden, InvalidRequest } from "../../contract/domain/errors.ts"
import type { NodeDetail } from "../../contract/domain/Node.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { defined } from "../../shared/work/defined.ts"
import { conditional, versioned } from "../http/conditional.ts"
import { checkNotice, checkRightFor, currentRestriction, ServerAccess } from "../http/Principal.ts"
import { Journal } from "../store/journal/Journal.ts"
import { NodeMigrations, NodeRegistry } from "./NodeRegistry.ts"
import { makeKeyState } from "./nodeAvailability.ts"
import { deleteServersFirst, owns } from "./nodeWrites.ts"

const limitedToServers = new Forbidden({
  detail: "the API key lacks access to every server: a drain concerns all servers of its node",
  hint: "Use a key that is not limited to servers, blueprints or labels."
})

/** 422 if fields do not fit together, 403 if a field needs a right that the key lacks. */
const checkDrain = Effect.fnUntraced(function* (payload: DrainRequest, dryRun: boolean) {
  const { drained, move, ...choices } = payload
  if (!drained && (move === true || dryRun)) {
    return yield* new InvalidRequest({
      detail: `body field ${dryRun ? "drained: expected true in a dry run" : "move: expected false or absent if drained is false"}`,
      hint: "Only a drained node migrates its servers: send drained with true."
    })
  }
  const [chosen] = Object.keys(choices)
  if (chosen !== undefined && move !== true) {
    return yield* new InvalidRequest({
      detail: `body field ${chosen}: only a drain with move has it`,
      hint: "Send move with true, or leave the field out."
    })
  }
  yield* checkNotice(choices)
  if (choices.deadline !== undefined) yield* checkRightFor("deadline", "stop")
})

const choicesOf = Effect.fnUntraced(function* ({ deadline, notify, notify_seconds, parallel }: DrainRequest) {
  const now = yield* Clock.currentTimeMillis
  return {
    ...(parallel === undefined ? {} : { parallel }),
    ...(deadline === undefined ? {} : { deadline_at: new Date(now + deadline * 1000).toISOString() }),
    ...defined({ notify, notify_seconds })
  } satisfies DrainChoices
})

/** Handlers of the node routes (spec 2.1). */
export const NodesHandlers = handlersOf(
  ApplicationApi,
  "nodes",
  Effect.fn(function* (handlers) {
    const nodes = yield* NodeRegistry
    const migrations = yield* NodeMigrations
    const keyState = yield* makeKeyState
    const journal = yield* Journal
    const access = yield* ServerAccess

    const withProgress = (detail: NodeDetail) =>
      Effect.map(migrations.progress(detail.id), (move) =>
        move === undefined ? detail : { ...detail, move }
      )

    const withCount = Effect.fnUntraced(function* (detail: NodeDetail) {
      const servers = yield* access.countOn(detail.id)
      return servers === undefined ? detail : { ...detail, servers }
    })

    /** Adds the key's state for a disconnected node only, which saves the read for all others. */
    const withKey = Effect.fnUntraced(function* (detail: NodeDetail) {
      if (detail.connected) return detail
      const key = yield* keyState(detail.id)
      return key === undefined ? detail : { ...detail, key }
    })

    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ query }) {
        // Before the list: a stream from the cursor then misses nothing.
        const cursor = yield* journal.applied
        const list = yield* nodes.list
        return yield* conditional(
          versioned(query.ids_only === true ? list.map((node) => node.id) : list, cursor)
        )
      }),
      get: Effect.fnUntraced(function* ({ params }) {
        const cursor = yield* journal.applied
        const detail = yield* withCount(yield* withProgress(yield* withKey(yield* nodes.get(params.node))))
        return yield* conditional(versioned(detail, cursor))
      }),
      system: Effect.fnUntraced(function* ({ params }) {
        const { version } = yield* nodes.get(params.node)
        return { version, system: yield* nodes.system(params.node) }
      }),
      drained: Effect.fnUntraced(function* ({ params, payload, query }) {
        const { drained, move } = payload
        const dryRun = query.dry_run === true
        if (dryRun) yield* withoutAudit
        yield* describeAudit({ ...(drained ? {} : { action: "node.undrain" }), changes: fieldNames(payload) })
        if ((yield* currentRestriction) !== undefined) return yield* limitedToServers
        yield* checkDrain(payload, dryRun)
        yield* nodes.get(params.node)
        if (dryRun) return yield* migrations.plan(params.node)
        if (!drained || move === false) yield* migrations.end(params.node)
        const detail = yield* nodes.setDrained(params.node, drained)
        if (move === true) yield* migrations.begin(params.node, yield* choicesOf(payload))
        return yield* withProgress(yield* withKey(detail))
      }),
      remove: Effect.fnUntraced(function* ({ params, query }) {
        const { connected, servers, unreachable } = yield* nodes.get(params.node)
        const hint = deleteServersFirst(params.node, yield* access.stuckOn(params.node))
        if (query.force !== true && (connected || unreachable !== undefined)) {
          if (servers > 0) return yield* owns(params.node, servers, hint)
          return yield* new Conflict({
            detail: `node is connected: ${params.node}`,
            hint: "Stop its daemon first: a daemon that runs registers again. Or send force=true."
          })
        }
        yield* Effect.catchTag(nodes.remove(params.node), "Conflict", ({ detail }) =>
          Effect.fail(new Conflict({ detail, hint }))
        )
        yield* migrations.end(params.node)
      })
    })
  })
)
