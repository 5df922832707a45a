import { Effect, Layer, Schedule } from "effect"
import { Conflict, Forbidden, InvalidRequest, NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import type { Registration, ReportsAnswer, ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { pageNumber, pageSize, paginated } from "../../contract/domain/Pagination.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { ControlPlaneApi, type ControlPlaneError } from "../../contract/nodeApi/ControlPlaneApi.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { NodeKeys } from "../keys/NodeKeys.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { RemoteDaemons } from "../nodes/remote/RemoteDaemons.ts"
import { NodeGateway } from "./NodeGateway.ts"

const pages = { standard: 100, fallback: 100, maximum: 1000 }

const unregistered = (node_id: NodeId) =>
  new NotFound({
    detail: `node is not registered: ${node_id}`,
    hint: "Register the node, with a snapshot of its servers."
  })

const answerOf = (error: ControlPlaneError) =>
  error._tag === "RegistrationRequired"
    ? unregistered(error.node_id)
    : new Unavailable({ detail: error.detail })

const failureAt = (failure: ControlPlaneError | undefined, index: number): ReportsAnswer["failures"] => {
  if (failure === undefined) return []
  const { detail } = answerOf(failure)
  return [{ index, status: failure._tag === "RegistrationRequired" ? 404 : 503, detail }]
}

const specOf = ({ id, definition, allocations }: ServerRecord): ServerSpec => ({
  id,
  definition,
  allocations
})

/** Whether a text is an HTTP address without a query, as the paths of calls are appended to it. */
const isAddress = (text: string): boolean => {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false
  const { protocol, username, password } = new URL(text)
  return (protocol === "http:" || protocol === "https:") && username === "" && password === ""
}

const checkRegistration = Effect.fnUntraced(function* (node_id: NodeId, registration: Registration) {
  if (registration.id !== node_id) {
    return yield* new InvalidRequest({
      detail: `body field id: expected ${node_id}, as in the path, got ${registration.id.slice(0, 100)}`
    })
  }
  if (!isAddress(registration.url)) {
    return yield* new InvalidRequest({
      detail: `body field url: expected an address such as http://10.0.0.7:5585, got ${registration.url.slice(0, 100)}`,
      hint: "Set MUSTER_NODE_URL to where the control plane reaches the daemon."
    })
  }
})

/** Handlers of the routes of daemons (spec 9.1): they check the sender's key. */
export const NodeHandlers = handlersOf(
  ControlPlaneApi,
  "node",
  Effect.fn(function* (handlers) {
    const fleet = yield* Fleet
    const gateway = yield* NodeGateway
    const keys = yield* NodeKeys
    const registry = yield* NodeRegistry
    const remotes = yield* RemoteDaemons

    /** Checks that the caller's key is the node's. Registering may claim a node id without a record. */
    const checkKey = Effect.fnUntraced(function* (node_id: NodeId) {
      if ((yield* keys.check(node_id)) === "own") return
      if (fleet.get(node_id)?.record === undefined) yield* registry.refresh(node_id)
      if (fleet.get(node_id)?.record === undefined) return yield* unregistered(node_id)
      return yield* new Forbidden({
        detail: "no node has registered with the API key",
        hint: "Register the node with this key first."
      })
    })
    const from = <A>(node_id: NodeId, call: Effect.Effect<A, ControlPlaneError>) =>
      Effect.andThen(checkKey(node_id), Effect.mapError(call, answerOf))
    const own = (params: { readonly node: NodeId; readonly server: ServerId }) =>
      Effect.andThen(checkKey(params.node), gateway.server(params.node, params.server))

    return handlers.handleAll({
      register: Effect.fnUntraced(function* ({ params, payload }) {
        yield* checkRegistration(params.node, payload)
        yield* registry.check(payload)
        yield* remotes.check(params.node, payload.url)
        yield* keys.bind(params.node)
        const answer = yield* Effect.mapError(
          gateway.register(payload),
          ({ detail }) => new Unavailable({ detail })
        )
        yield* remotes.registered(params.node)
        return answer
      }),
      heartbeat: Effect.fnUntraced(function* ({ params: { node }, payload }) {
        yield* from(node, gateway.heartbeat(node, payload))
        const unreachable = yield* Effect.mapError(remotes.onHeartbeat(node), answerOf)
        return unreachable === undefined ? undefined : { unreachable }
      }),
      disconnect: ({ params: { node }, query }) => from(node, gateway.disconnect(node, query.boot_id)),
      servers: Effect.fnUntraced(function* ({ params: { node }, query }) {
        const records = yield* from(node, gateway.servers(node))
        const at = { page: pageNumber(query.page), per_page: pageSize(query.per_page, pages) }
        const first = (at.page - 1) * at.per_page
        const items = records.slice(first, first + at.per_page).map(specOf)
        return paginated({ items, total: records.length }, at)
      }),
      server: ({ params }) => Effect.map(own(params), specOf),
      install: ({ params }) =>
        Effect.map(own(params), ({ definition }) => ({ install_script: definition.install_script })),
      ports: Effect.fnUntraced(function* ({ params: { node, server }, payload: { boot_id, taken } }) {
        yield* checkKey(node)
        const allocations = yield* Effect.mapError(
          gateway.replacePorts(node, boot_id, server, taken),
          (error) =>
            error._tag === "ControlPlaneUnavailable" && error.refuses === "message"
              ? new Conflict({
                  detail: error.detail,
                  hint: "Free a port of the node, then start the server."
                })
              : answerOf(error)
        )
        return { allocations }
      }),
      files: Effect.fnUntraced(function* ({ params }) {
        yield* own(params)
        return yield* Effect.mapError(gateway.files(params.node, params.server), answerOf)
      }),
      reports: Effect.fnUntraced(function* ({ params: { node }, payload: { boot_id, reports } }) {
        const outcomes = yield* from(node, gateway.reports(node, boot_id, reports))
        return { failures: outcomes.flatMap(failureAt) }
      })
    })
  })
)

/** Keys are revoked by other processes, which say so in the database alone. */
const EVERY = "250 millis"

/** Disconnects nodes whose key is revoked or expired (spec 6.1). It looks only while a remote node is connected. */
export const RevokedNodes = Layer.effectDiscard(
  Effect.gen(function* () {
    const fleet = yield* Fleet
    const keys = yield* NodeKeys
    const registry = yield* NodeRegistry
    const remotes = yield* RemoteDaemons

    const look = Effect.gen(function* () {
      // Read before the look, because a later registration may have another key.
      const tokens = new Map(
        [...fleet.nodes].flatMap(({ connected, id, record }) =>
          connected && record !== undefined && remotes.has(id) ? [[id, record.token]] : []
        )
      )
      if (tokens.size === 0) return
      for (const id of yield* keys.revoked([...tokens.keys()])) {
        yield* Effect.logWarning("node revoked: its key is revoked or expired").pipe(
          Effect.annotateLogs({ node_id: id })
        )
        yield* registry.revoke(id, tokens.get(id) ?? "", { lost: true })
      }
    })
    yield* look.pipe(
      Effect.catchTag("Unavailable", (error) =>
        Effect.logDebug(`the keys of nodes cannot be read: ${error.detail}`)
      ),
      Effect.repeat(Schedule.spaced(EVERY)),
      Effect.forkScoped
    )
  })
)
