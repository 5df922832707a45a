import { type Reply, request, segment } from "../api/http.ts"
import type { Power } from "../api/types.ts"
import { counted } from "../dom/format.ts"
import { done, failed, tell } from "./notices.ts"
import { nameOf, refresh } from "./servers.ts"

const pastOf: Readonly<Record<Power | "delete", string>> = {
  start: "Start requested",
  stop: "Stop requested",
  restart: "Restart requested",
  kill: "Kill requested",
  pause: "Pause requested",
  unpause: "Unpause requested",
  delete: "Deleted"
}

const told = (reply: Promise<Reply<unknown>>, text: string, id: string): Promise<boolean> => {
  const refused = text.replace(/ requested$/, " failed").replace(/^Deleted/, "Not deleted")
  return tell(reply, `${text}: ${nameOf(id)}`, `${refused}: ${nameOf(id)}`)
}

const pathOf = (id: string): string => `/api/servers/${segment(id)}`

export const power = (id: string, action: Power): Promise<boolean> =>
  told(request("POST", `${pathOf(id)}/power`, { body: { action } }), pastOf[action], id)

export const remove = async (id: string, force: boolean): Promise<boolean> => {
  const ok = await told(request("DELETE", `${pathOf(id)}${force ? "?force=true" : ""}`), pastOf.delete, id)
  if (ok) void refresh(id)
  return ok
}

/** Calls a route of one server that has no body in return; says what came of it. */
export const act = (id: string, route: string, text: string, body?: unknown): Promise<boolean> =>
  told(request("POST", `${pathOf(id)}/${route}`, body === undefined ? {} : { body }), text, id)

type Outcomes = Readonly<Record<string, { readonly status: unknown; readonly detail?: string }>>

/** Acts on many servers with one request; says how many failed, and why the first did. */
export const actOnMany = async (ids: ReadonlyArray<string>, action: Power | "delete"): Promise<void> => {
  const selector = { ids }
  const reply = await (action === "delete"
    ? request<Outcomes>("DELETE", "/api/servers", { body: { selector } })
    : request<Outcomes>("POST", "/api/servers/power", { body: { selector, action } }))
  if (!reply.ok) return failed(`${action} of ${counted(ids.length, "server")} failed`, reply)
  const outcomes = Object.entries(reply.body)
  const refused = outcomes.filter(([, { detail }]) => detail !== undefined)
  const fine = outcomes.length - refused.length
  if (fine > 0) done(`${pastOf[action]}: ${counted(fine, "server")}`)
  const [first] = refused
  if (first !== undefined) {
    const others = refused.length > 1 ? ` And ${counted(refused.length - 1, "other")}.` : ""
    failed(`${action} failed for ${counted(refused.length, "server")}`, {
      detail: `${nameOf(first[0])}: ${first[1].detail ?? ""}.${others}`,
      hint: ""
    })
  }
}
