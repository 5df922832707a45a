import { Effect, Option } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ControlPlane, type ControlPlaneError } from "../api/ControlPlane.ts"
import { NodeApi } from "../api/NodeApi.ts"
import { Forbidden, InvalidRequest, NotFound, Unavailable } from "../domain/errors.ts"
import type { Registration, Report, ServerSpec } from "../domain/NodeMessages.ts"
import { pageNumber, pageSize, paginated } from "../domain/Pagination.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { NodeKeys } from "../keys/NodeKeys.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { RemoteDaemons } from "../nodes/remote/RemoteDaemons.ts"
import { Journal } from "../store/journal/Journal.ts"
import { NodeReconciler } from "./controllers/NodeReconciler.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"

const pages = { standard: 100, fallback: 100, maximum: 1000 }

const unregistered = (node_id: string) =>
  new NotFound({ detail: `node is not registered: ${node_id}`, hint: "Register, and say what it has." })

const answerOf = (error: ControlPlaneError) =>
  error._tag === "RegistrationRequired"
    ? unregistered(error.node_id)
    : new Unavailable({ detail: error.detail })

const specOf = ({ id, definition, allocations }: ServerRecord): ServerSpec => ({
  id,
  definition,
  allocations
})

/** Paths are put behind it: it must end before a query. */
const isAddress = (text: string): boolean => {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false
  const { protocol, username, password } = new URL(text)
  return (protocol === "http:" || protocol === "https:") && username === "" && password === ""
}

/** What of a registration does not go with the route that it came by. */
const checkRegistration = Effect.fnUntraced(function* (node_id: string, registration: Registration) {
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

/** Handlers of the routes of daemons (node-protocol, "Daemon -> control plane"). */
export const NodeHandlers = HttpApiBuilder.group(
  NodeApi,
  "node",
  Effect.fn(function* (handlers) {
    const fleet = yield* Fleet
    const index = yield* ServerIndex
    const keys = yield* NodeKeys
    const lifecycle = yield* ServerLifecycle
    const plane = yield* ControlPlane
    const reconciler = yield* NodeReconciler
    const registry = yield* NodeRegistry
    const remotes = yield* RemoteDaemons
    const journal = yield* Journal

    /** The caller's key is this node's. Where nobody is the node, it may become it by registering. */
    const checkKey = Effect.fnUntraced(function* (node_id: string) {
      if ((yield* keys.check(node_id)) === "own") return
      if (fleet.get(node_id)?.record === undefined) yield* registry.refresh(node_id)
      if (fleet.get(node_id)?.record === undefined) return yield* unregistered(node_id)
      return yield* new Forbidden({
        detail: "the API key belongs to no node",
        hint: "Register with it first."
      })
    })
    /** The record of a server of this node: those of others do not exist for it. */
    const own = Effect.fnUntraced(function* (node_id: string, id: string) {
      yield* checkKey(node_id)
      const find = Effect.map(index.find(id), (found) =>
        Option.filter(found, (record) => record.node_id === node_id)
      )
      const known = yield* find
      if (Option.isSome(known)) return known.value
      // Another replica may have placed it a moment ago.
      yield* journal.catchUp
      const later = yield* find
      return Option.isSome(later) ? later.value : yield* NotFound.server(id)
    })
    /** The boot that a message is of: the one that it names, else that of the last registration. */
    const bootOf = Effect.fnUntraced(function* (node_id: string, boot_id: string | undefined) {
      if (boot_id !== undefined) {
        yield* Effect.catchTag(registry.checkBoot(node_id, boot_id), "RegistrationRequired", () =>
          Effect.fail(unregistered(node_id))
        )
        return boot_id
      }
      yield* registry.refresh(node_id)
      return fleet.get(node_id)?.record?.boot_id ?? (yield* unregistered(node_id))
    })
    const report = Effect.fnUntraced(function* (node_id: string, boot_id: string, told: Report) {
      yield* checkKey(node_id)
      yield* Effect.mapError(plane.report(node_id, boot_id, told), answerOf)
    })

    return handlers.handleAll({
      register: Effect.fnUntraced(function* ({ params, payload }) {
        // Before anything of it counts.
        yield* checkRegistration(params.node, payload)
        yield* registry.check(payload)
        yield* remotes.check(params.node, payload.url)
        yield* keys.bind(params.node)
        const answer = yield* reconciler.register(payload)
        yield* remotes.registered(params.node)
        return answer
      }),
      heartbeat: Effect.fnUntraced(function* ({ params, payload }) {
        yield* checkKey(params.node)
        yield* Effect.mapError(plane.heartbeat(params.node, payload), answerOf)
        const unreachable = yield* Effect.mapError(remotes.heard(params.node), answerOf)
        return unreachable === undefined ? undefined : { unreachable }
      }),
      disconnect: Effect.fnUntraced(function* ({ params, query }) {
        yield* checkKey(params.node)
        const boot_id = yield* bootOf(params.node, query.boot_id)
        yield* Effect.mapError(plane.disconnect(params.node, boot_id), answerOf)
      }),
      servers: Effect.fnUntraced(function* ({ params, query }) {
        yield* checkKey(params.node)
        const at = { page: pageNumber(query.page), per_page: pageSize(query.per_page, pages) }
        const records = (yield* index.onNode(params.node)).toSorted((a, b) => (a.id < b.id ? -1 : 1))
        const from = (at.page - 1) * at.per_page
        const items = records.slice(from, from + at.per_page).map(specOf)
        return paginated({ items, total: records.length }, at)
      }),
      server: ({ params }) => Effect.map(own(params.node, params.server), specOf),
      install: ({ params }) =>
        Effect.map(own(params.node, params.server), ({ definition }) => ({
          install_script: definition.install_script
        })),
      files: Effect.fnUntraced(function* ({ params }) {
        yield* own(params.node, params.server)
        return yield* Effect.mapError(plane.files(params.node, params.server), answerOf)
      }),
      status: ({ params, payload: { boot_id, sequence, status, transient } }) =>
        report(params.node, boot_id, {
          type: "status",
          server_id: params.server,
          sequence,
          status,
          transient: transient ?? false
        }),
      installStatus: ({ params, payload: { boot_id, sequence, install } }) =>
        report(params.node, boot_id, { type: "install-status", server_id: params.server, sequence, install }),
      crash: ({ params, payload: { boot_id, sequence, crash } }) =>
        report(params.node, boot_id, { type: "crash", server_id: params.server, sequence, crash }),
      deleted: Effect.fnUntraced(function* ({ params, payload }) {
        yield* checkKey(params.node)
        yield* bootOf(params.node, payload.boot_id)
        const record = Option.getOrUndefined(yield* index.lookUp(params.server, params.node))
        // The node is asked whether it is so; that can be repeated, and tells an old report from a new one.
        if (record?.node_id === params.node) yield* lifecycle.markForVerification([params.server])
      })
    })
  })
)
