/** The additions for clients of SLS (spec 1.12). */
import { Context } from "effect"
import type { InstallPhase } from "../../contract/domain/InstallState.ts"

const MEDIA_TYPE = "application/vnd.sls.v1+json"

/** `page` and `per_page` are from the query of SLS's own client. */
export interface SlsRequest {
  readonly page: string | undefined
  readonly per_page: string | undefined
}

/** Set while a request of SLS's own client is handled. */
export const CurrentSlsRequest = Context.Reference<SlsRequest | undefined>("muster/api/CurrentSlsRequest", {
  defaultValue: () => undefined
})

export const isSls = (accept: string | undefined): boolean =>
  accept?.split(",").some((range) => range.split(";")[0]?.trim().toLowerCase() === MEDIA_TYPE) ?? false

/** Lists that have `limit`: SLS's clients call it `per_page`. */
const limited = /^\/api\/(?:servers|stats|crashes|servers\/[^/]+\/crashes)$/
const logs = /^(\/api\/servers\/[^/]+)\/logs$/

export const slsTarget = (url: string): { readonly url: string; readonly request: SlsRequest } => {
  const mark = url.indexOf("?")
  const query = new URLSearchParams(mark === -1 ? "" : url.slice(mark + 1))
  const request = { page: query.get("page") ?? undefined, per_page: query.get("per_page") ?? undefined }
  if (mark === -1) return { url, request }
  const path = url.slice(0, mark)
  const to = (target: string) => {
    const text = query.toString()
    return { url: text === "" ? target : `${target}?${text}`, request }
  }
  if (path === "/api/mixins") {
    for (const name of ["page", "per_page"]) query.delete(name)
    return to(path)
  }
  if (limited.test(path) && query.has("per_page")) {
    if (!query.has("limit")) query.set("limit", request.per_page ?? "")
    query.delete("per_page")
    return to(path)
  }
  const server = logs.exec(path)?.[1]
  if (server !== undefined && query.get("type") === "install") {
    const size = query.get("size")
    if (size !== null && request.per_page === undefined) query.set("per_page", size)
    for (const name of ["type", "size"]) query.delete(name)
    return to(`${server}/install/logs`)
  }
  return { url, request }
}

const phases = {
  pending: "idle",
  installing: "installing",
  failed: "install_failed",
  ready: "completed"
} as const

/** Returns SLS's word for a phase of an installation. */
export const slsPhase = (phase: InstallPhase): (typeof phases)[InstallPhase] => phases[phase]
