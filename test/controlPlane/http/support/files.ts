/** The files of servers on the embedded node and on a remote one. */
import { Context, Effect, Layer } from "effect"
import { Muster } from "../../../support/Muster.ts"
import { connectedNode } from "../../../support/nodes.ts"
import { freePorts } from "../../../support/ports.ts"
import type { Service } from "../../../support/Service.ts"
import { expectStatus, installed } from "../../../support/servers.ts"

export const q = encodeURIComponent

export const places = ["embedded", "remote"] as const

/** The routes of the files of a server. */
export const filesOf = (api: Service, id: string) => {
  const base = `/api/servers/${id}/files`
  const content = (path: string, query = "") => `${base}/content?path=${q(path)}${query}`
  return {
    base,
    list: (path = "/", query = "") => expectStatus(api, 200, "GET", `${base}?path=${q(path)}${query}`),
    get: (path: string, headers: Record<string, string> = {}) =>
      api.request("GET", content(path), { headers }),
    head: (path: string, headers: Record<string, string> = {}) =>
      api.request("HEAD", content(path), { headers }),
    put: (path: string, raw: string, headers: Record<string, string> = {}, query = "") =>
      api.request("PUT", content(path, query), { raw, headers }),
    post: (action: string, body: object) => api.request("POST", `${base}/${action}`, { body }),
    archive: (query: string) => api.request("GET", `${base}/archive?${query}`),
    search: (query: string) => api.request("GET", `${base}/search?${query}`)
  }
}

/** The ports of {@link Far}. */
const PORTS = 50

/** A node on another machine. */
export class Far extends Context.Service<Far, Effect.Success<ReturnType<typeof connectedNode>>>()(
  "test/Far"
) {
  static readonly layer = Layer.effect(
    Far,
    Effect.gen(function* () {
      const first = yield* freePorts(PORTS)
      const env = { MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${first}-${first + PORTS - 1}` }
      return yield* connectedNode(yield* Muster, "far", { env })
    })
  )
}

/** An installed server on the embedded node or on a remote one, and its files. */
export const scene = Effect.fnUntraced(function* (place: (typeof places)[number]) {
  const api = yield* Muster
  const nodes = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
  const node = nodes.find(({ name }: { readonly name: string }) => (name === "far") === (place === "remote"))
  const id = yield* installed(api, "kept", { node_id: node.id })
  return { api, id, files: filesOf(api, id) }
})
