/** The requests of clients over HTTP, and the recorded part of the responses. */
import type { Asked, Operation } from "./History.ts"
import type { HttpAnswer, HttpRequest } from "./http.ts"

/** The hint of an error that certainly changed nothing begins with this. */
const UNCHANGED = "Nothing was changed"

/** The HTTP request of a client's request. */
export const requestOf = (asked: Asked): HttpRequest => {
  switch (asked.kind) {
    case "create":
    case "create-otherwise":
      return {
        method: "POST",
        path: "/api/servers",
        body: asked.body,
        headers: { "idempotency-key": asked.key }
      }
    case "delete":
      return { method: "DELETE", path: `/api/servers/${asked.server}${asked.force ? "?force=true" : ""}` }
    case "power":
      return { method: "POST", path: `/api/servers/${asked.server}/power`, body: { action: asked.action } }
    case "commands":
      return {
        method: "POST",
        path: `/api/servers/${asked.server}/commands`,
        body: { commands: ["say hello"] }
      }
    case "reinstall":
    case "reset":
      return { method: "POST", path: `/api/servers/${asked.server}/${asked.kind}` }
    case "drain":
      return {
        method: "PATCH",
        path: `/api/nodes/${asked.node}/drained`,
        body: { drained: asked.drained, ...(asked.move ? { move: true } : {}) }
      }
    case "reload":
      return { method: "POST", path: `/api/${asked.folder}/reload` }
    case "ticket":
      return { method: "POST", path: "/api/events/tickets" }
    case "list":
      return { method: "GET", path: asked.what }
    case "look":
      return { method: "GET", path: `/api/servers/${asked.server}${asked.what}` }
    case "look-at-node":
      return { method: "GET", path: `/api/nodes/${asked.node}` }
  }
}

type Kept = Pick<Operation, "id" | "node_id" | "ids" | "detail" | "unchanged" | "malformed">

/** The recorded part of a response. */
export const keptOf = (asked: Asked, { malformed, status, text }: HttpAnswer): Kept => {
  const wrong = (why: string): Kept => ({ malformed: why })
  if (malformed !== undefined) return wrong(malformed)
  try {
    const body = text === "" ? undefined : JSON.parse(text)
    if (status >= 400) {
      const unchanged = String(body.hint).startsWith(UNCHANGED)
      return { detail: String(body.detail), ...(unchanged ? { unchanged: true } : {}) }
    }
    if (asked.kind === "create" || asked.kind === "create-otherwise") {
      return typeof body.id === "string" && typeof body.node_id === "string"
        ? { id: body.id, node_id: body.node_id }
        : wrong(`a creation that answers ${text}`)
    }
    if (asked.kind === "look" && asked.what === "" && body.id !== asked.server)
      return wrong(`another: ${text}`)
    if (asked.kind !== "list" || !asked.what.startsWith("/api/servers")) return {}
    const ids = body.map((item: string | { readonly id: string }) =>
      typeof item === "string" ? item : item.id
    )
    return { ids }
  } catch (cause) {
    return wrong(`${cause}: ${text.slice(0, 200)}`)
  }
}
