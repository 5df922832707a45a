import { type Reply, request, segment } from "../api/http.ts"
import type { Power } from "../api/types.ts"
import { counted } from "../dom/format.ts"
import { done, failed } from "./notices.ts"
import { nameOf, refresh } from "./servers.ts"

export const pastOf: Readonly<Record<Power | "delete", string>> = {
  start: "Start requested",
  stop: "Stop requested",
  restart: "Restart requested",
  kill: "Kill requested",
  pause: "Pause requested",
  unpause: "Unpause requested",
  delete: "Deleted"
}

const report = (text: string, reply: Reply<unknown>): boolean => {
  if (reply.ok) done(text)
  else failed(text.replace(/ requested$/, " failed").replace(/^Deleted/, "Not deleted"), reply)
  return reply.ok
}

export const power = async (id: string, action: Power): Promise<boolean> =>
  report(
    `${pastOf[action]}: ${nameOf(id)}`,
    await request("POST", `/api/servers/${segment(id)}/power`, { body: { action } })
  )

export const remove = async (id: string, force: boolean): Promise<boolean> => {
  const name = nameOf(id)
  const ok = report(
    `Deleted: ${name}`,
    await request("DELETE", `/api/servers/${segment(id)}${force ? "?force=true" : ""}`)
  )
  if (ok) void refresh(id)
  return ok
}

/** Calls a route of one server that has no body in return; says what came of it. */
export const act = async (id: string, route: string, text: string, body?: unknown): Promise<boolean> =>
  report(
    `${text}: ${nameOf(id)}`,
    await request("POST", `/api/servers/${segment(id)}/${route}`, body === undefined ? {} : { body })
  )

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
