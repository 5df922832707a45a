import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { conditional, versioned } from "../api/conditional.ts"
import { currentRestriction } from "../api/Principal.ts"
import { ServerAccess } from "../api/ServerAccess.ts"
import { describeAudit } from "../domain/AuditedRequest.ts"
import { Conflict, Forbidden, InvalidRequest } from "../domain/errors.ts"
import type { NodeDetail } from "../domain/Node.ts"
import { Journal } from "../store/journal/Journal.ts"
import { NodeMigrations } from "./NodeMigrations.ts"
import { NodeRegistry } from "./NodeRegistry.ts"
import { makeKeyState } from "./nodeAvailability.ts"
import { deleteServersFirst, owns } from "./nodeWrites.ts"

const limitedToServers = new Forbidden({
  detail: "the API key lacks access to every server: a drain concerns all servers of its node",
  hint: "Use a key that is not limited to servers, blueprints or labels."
})

/** Handlers of the node routes (contract 4.2; decisions, section 2). */
export const NodesHandlers = HttpApiBuilder.group(
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

    /** Only of a node that is away, since nothing else of a node need be read. */
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
          versioned(query.ids_only === "true" ? list.map((node) => node.id) : list, cursor)
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
      drained: Effect.fnUntraced(function* ({ params, payload }) {
        const { drained, move } = payload
        yield* describeAudit({
          ...(drained ? {} : { action: "node.undrain" }),
          changes: move === undefined ? ["drained"] : ["drained", "move"]
        })
        if ((yield* currentRestriction) !== undefined) return yield* limitedToServers
        if (!drained && move === true) {
          return yield* new InvalidRequest({
            detail: "body field move: expected false or absent if drained is false",
            hint: "Only a drained node migrates its servers: send drained with true."
          })
        }
        yield* nodes.get(params.node)
        if (!drained || move === false) yield* migrations.end(params.node)
        const detail = yield* nodes.setDrained(params.node, drained)
        if (move === true) yield* migrations.begin(params.node)
        return yield* withProgress(yield* withKey(detail))
      }),
      remove: Effect.fnUntraced(function* ({ params, query }) {
        const { connected, servers, unreachable } = yield* nodes.get(params.node)
        const hint = deleteServersFirst(yield* access.stuckOn(params.node))
        if (query.force !== "true" && (connected || unreachable !== undefined)) {
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
