/** The requests of clients over HTTP, and the recorded part of the responses. */
import type { ClientRequest, Operation, Outcome } from "./History.ts"
import type { HttpAnswer, HttpRequest } from "./http.ts"

/** The hint of an error that certainly changed nothing begins with this. */
const UNCHANGED = "Nothing was changed"

/** The HTTP request of a client's request. */
export const requestOf = (requested: ClientRequest): HttpRequest => {
  switch (requested.kind) {
    case "create":
    case "create-conflict":
      return {
        method: "POST",
        path: "/api/servers",
        body: requested.body,
        headers: { "idempotency-key": requested.key }
      }
    case "delete":
      return {
        method: "DELETE",
        path: `/api/servers/${requested.server}?force=${requested.force}&purge=${requested.purge === true}`
      }
    case "undelete":
      return { method: "POST", path: `/api/servers/${requested.server}/undelete` }
    case "back-up":
      return { method: "POST", path: `/api/servers/${requested.server}/backups`, body: {} }
    case "restore":
      return { method: "POST", path: `/api/servers/${requested.server}/restore`, body: requested.body }
    case "verify":
      return { method: "POST", path: `/api/backups/${requested.backup}/verify` }
    case "delete-backup":
      return { method: "DELETE", path: `/api/backups/${requested.backup}` }
    case "read-backup":
      return { method: "GET", path: `/api/backups/${requested.backup}/archive` }
    case "list-backups":
      return { method: "GET", path: "/api/backups?state=done&limit=100" }
    case "list-deleted":
      return { method: "GET", path: "/api/servers?deleted=true" }
    case "cancel":
      return { method: "DELETE", path: `/api/operations/${requested.operation}` }
    case "schedule":
      return { method: "POST", path: "/api/schedules", body: requested.body }
    case "run-schedule":
      return { method: "POST", path: `/api/schedules/${requested.schedule}/run` }
    case "pause-schedule":
      return { method: "PATCH", path: `/api/schedules/${requested.schedule}`, body: { enabled: false } }
    case "delete-schedule":
      return { method: "DELETE", path: `/api/schedules/${requested.schedule}` }
    case "power":
      return {
        method: "POST",
        path: `/api/servers/${requested.server}/power`,
        body: { action: requested.action }
      }
    case "commands":
      return {
        method: "POST",
        path: `/api/servers/${requested.server}/commands`,
        body: { commands: [`write ${requested.text}`] }
      }
    case "patch":
      return { method: "PATCH", path: `/api/servers/${requested.server}`, body: requested.body }
    case "upgrade":
      return { method: "POST", path: `/api/servers/${requested.server}/upgrade`, body: {} }
    case "roll-out":
      return { method: "POST", path: "/api/rollouts", body: requested.body }
    case "change-rollout":
      return { method: "POST", path: `/api/rollouts/${requested.rollout}/${requested.change}` }
    case "power-many":
      return {
        method: "POST",
        path: "/api/servers/power",
        body: { selector: { ids: requested.servers }, action: requested.action }
      }
    case "delete-many":
      return {
        method: "DELETE",
        path: "/api/servers",
        body: { selector: { ids: requested.servers }, force: requested.force }
      }
    case "reinstall":
    case "reset":
      return { method: "POST", path: `/api/servers/${requested.server}/${requested.kind}` }
    case "drain":
      return {
        method: "PATCH",
        path: `/api/nodes/${requested.node}/drained`,
        body: {
          drained: requested.drained,
          ...(requested.move ? { move: true } : {}),
          ...(requested.parallel === undefined ? {} : { parallel: requested.parallel })
        }
      }
    case "reload":
      return { method: "POST", path: `/api/${requested.folder}/reload` }
    case "ticket":
      return { method: "POST", path: "/api/events/tickets" }
    case "list":
      return { method: "GET", path: requested.what }
    case "get-server":
      return { method: "GET", path: `/api/servers/${requested.server}${requested.what}` }
    case "get-node":
      return { method: "GET", path: `/api/nodes/${requested.node}` }
  }
}

/** The requests of an action on several servers, one for each; none: another request. */
export const partsOf = (requested: ClientRequest): ReadonlyArray<ClientRequest & { server: string }> => {
  if (requested.kind === "power-many")
    return requested.servers.map((server) => ({ kind: "power", server, action: requested.action }))
  if (requested.kind === "delete-many")
    return requested.servers.map((server) => ({ kind: "delete", server, force: requested.force }))
  return []
}

type Kept = Pick<
  Operation,
  "id" | "node_id" | "ids" | "others" | "detail" | "outcomes" | "unchanged" | "malformed"
>

/** Requests whose response has the id of what they have begun. */
const begins: ReadonlyArray<ClientRequest["kind"]> = ["roll-out", "back-up", "restore", "verify", "schedule"]

const outcomeOf = (body: {
  readonly status: unknown
  readonly code: unknown
  readonly detail: unknown
}): Outcome =>
  body.status === 200 ? { status: 200 } : { status: Number(body.code), detail: String(body.detail) }

/** The recorded part of a response. */
export const keptOf = (requested: ClientRequest, { malformed, status, text }: HttpAnswer): Kept => {
  const wrong = (why: string): Kept => ({ malformed: why })
  if (malformed !== undefined) return wrong(malformed)
  try {
    if (requested.kind === "read-backup" && status === 200) return {}
    const body = text === "" ? undefined : JSON.parse(text)
    if (status >= 400) {
      const unchanged = String(body.hint).startsWith(UNCHANGED)
      return { detail: String(body.detail), ...(unchanged ? { unchanged: true } : {}) }
    }
    if (requested.kind === "create" || requested.kind === "create-conflict") {
      return typeof body.id === "string" && typeof body.node_id === "string"
        ? { id: body.id, node_id: body.node_id }
        : wrong(`a creation that answers ${text}`)
    }
    if (begins.includes(requested.kind))
      return typeof body.id === "string" ? { id: body.id } : wrong(`a ${requested.kind} that answers ${text}`)
    if (requested.kind === "list-backups" || requested.kind === "list-deleted")
      return { others: body.map(({ id }: { readonly id: string }) => id) }
    const parts = partsOf(requested)
    if (parts.length > 0) {
      const outcomes = new Map(parts.map(({ server }) => [server, outcomeOf(body[server])]))
      return Object.keys(body).length === outcomes.size ? { outcomes } : wrong(`outcomes of others: ${text}`)
    }
    if (requested.kind === "patch" && body.id !== requested.server) return wrong(`another: ${text}`)
    if (requested.kind === "get-server" && requested.what === "" && body.id !== requested.server)
      return wrong(`another: ${text}`)
    if (requested.kind !== "list" || !requested.what.startsWith("/api/servers")) return {}
    const ids = body.map((item: string | { readonly id: string }) =>
      typeof item === "string" ? item : item.id
    )
    return { ids }
  } catch (cause) {
    return wrong(`${cause}: ${text.slice(0, 200)}`)
  }
}
