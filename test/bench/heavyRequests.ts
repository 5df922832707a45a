/** The heaviest requests that there are with many servers. */
import { includable } from "../../src/contract/domain/Server.ts"
import { definition } from "../support/samples.ts"

/** As many as a selector may name, and a rollout may have. */
const BULK_IDS = 10_000
/** As many as are removed before the request times out. */
const REMOVED = 1_000

/** Fields of server number `n`: no two servers are equal, and each team has half of them. */
export const own = (n: number) => ({
  labels: { team: `team-${n % 2}`, n: String(n) },
  name: `Server number ${n}`,
  overrides: { env: { NUMBER: String(n) } },
  definition: definition({ limits: { memory_limit: 1024 }, env: { NUMBER: String(n) } }),
  expires_at: new Date(Date.now() + 1e9 + n).toISOString()
})

export interface HeavyRequest {
  readonly name: string
  readonly method?: string
  readonly path: string
  readonly body?: unknown
  readonly status?: number
  /** Default: that of the administrator. */
  readonly key?: string
}

const every = `include=${includable.filter((name) => name !== "stats").join(",")}`

/** @param limited a key that reads the servers of `team-1` */
const reads = (limited: string): ReadonlyArray<HeavyRequest> => [
  { name: "list", path: "/api/servers" },
  { name: "list, all fields", path: `/api/servers?${every}` },
  { name: "list, all fields, once more", path: `/api/servers?${every}` },
  { name: "list of ids", path: "/api/servers?ids_only=true" },
  { name: "list with figures", path: "/api/servers?include=stats" },
  { name: "figures", path: "/api/stats" },
  { name: "list by a label", path: "/api/servers?label=team%3Dteam-1" },
  { name: "list by a label, all fields", path: `/api/servers?label=team%3Dteam-1&${every}` },
  { name: "list by a name that no server has", path: "/api/servers?q=nothing" },
  { name: "page", path: `/api/servers?limit=1000&${every}` },
  ...[
    { name: "list", path: "/api/servers" },
    { name: "list, all fields", path: `/api/servers?${every}` },
    { name: "list of ids", path: "/api/servers?ids_only=true" },
    { name: "figures", path: "/api/stats" },
    { name: "nodes", path: "/api/nodes" },
    { name: "node", path: "/api/nodes/node-1" },
    { name: "beginning of an id", path: "/api/servers/zzzzzzzz", status: 404 },
    { name: "crashes", path: "/api/crashes?limit=100" }
  ].map((request) => ({ ...request, name: `${request.name}, limited key`, key: limited })),
  { name: "nodes", path: "/api/nodes" },
  { name: "node", path: "/api/nodes/node-1" },
  { name: "beginning of an id", path: "/api/servers/zzzzzzzz", status: 404 },
  { name: "crashes", path: "/api/crashes?limit=100" },
  { name: "audit", path: "/api/audit?limit=1000" },
  { name: "metrics", path: "/metrics" },
  { name: "OpenAPI", path: "/openapi.json" },
  { name: "pages", path: "/nodes" }
]

const team = { labels: { team: "team-1" } }

const changes = (ids: ReadonlyArray<string>): ReadonlyArray<HeavyRequest> => [
  {
    name: "plan of a rollout",
    method: "POST",
    path: "/api/rollouts?dry_run=true",
    body: { selector: { ids: ids.slice(REMOVED, REMOVED + BULK_IDS) } }
  },
  {
    name: "power by a label",
    method: "POST",
    path: "/api/servers/power",
    body: { action: "start", selector: team }
  },
  {
    name: "power by ids",
    method: "POST",
    path: "/api/servers/power",
    body: { action: "stop", selector: { ids: ids.slice(0, BULK_IDS) } }
  },
  {
    name: "power by ids that no server has",
    method: "POST",
    path: "/api/servers/power",
    body: { action: "stop", selector: { ids: ids.slice(0, BULK_IDS).map((id) => `${id.slice(0, -4)}0000`) } }
  },
  {
    name: "plan of a creation",
    method: "POST",
    path: "/api/servers?dry_run=true",
    body: { blueprint_id: "survival" }
  },
  { name: "reload", method: "POST", path: "/api/blueprints/reload" },
  { name: "list with definitions after the reload", path: `/api/servers?${every}` },
  { name: "drain", method: "PATCH", path: "/api/nodes/node-1/drained", body: { drained: true, move: true } },
  {
    name: "removal by ids with force",
    method: "DELETE",
    path: "/api/servers",
    body: { selector: { ids: ids.slice(0, REMOVED) }, force: true }
  },
  {
    name: "rollout",
    method: "POST",
    path: "/api/rollouts",
    body: { selector: { ids: ids.slice(REMOVED, REMOVED + BULK_IDS) } },
    status: 201
  }
]

/** Returns the requests; the later ones change servers. */
export const heavyRequests = (limited: string, ids: ReadonlyArray<string>) => [
  ...reads(limited),
  ...changes(ids)
]
