/**
 * CPU time of a list of servers, against a bare server that serialises the same JSON for each request: 200 servers;
 * 10,000 servers, also while they change; a 304; a compressed list.
 */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { cpuMicros, interleaved, median, print, startBare } from "./harness.ts"
import { type LoadOptions, load } from "./load.ts"
import { seedServers } from "./seed.ts"

const CONNECTIONS = 32
const ROUNDS = 3
const MILLIS = 2_000
const FEW = 200
const MANY = 10_000
/** Requests, of which one changes a server. */
const PER_CHANGE = 8
/** Changes before these are measured: rounds have too few for V8 to compile what a change runs. */
const WARMUP_CHANGES = 3_000

interface Target {
  readonly url: string
  readonly pid: number
}

/** Starts a service with `count` servers and a bare server with the same list. */
const start = Effect.fnUntraced(function* (count: number, path: string) {
  const folder = yield* temporaryFolder
  const dataDir = join(folder, "data")
  const ids = yield* seedServers(dataDir, count, { known: true })
  // No node has a daemon, and a node that is away is an event: the ETag would change during the measurement.
  const env = { MUSTER_EMBEDDED_NODE: "false", MUSTER_NODE_HEARTBEAT_TIMEOUT: "3600" }
  const service = yield* startService({ dataDir, env })
  const file = join(folder, "servers.json")
  const list = yield* service.request("GET", path, { headers: { "accept-encoding": "identity" } })
  writeFileSync(file, list.text)
  return {
    ids,
    service,
    subject: { url: service.url, pid: service.process.pid ?? 0 },
    bare: yield* startBare("reads", file),
    etag: list.headers.get("etag") ?? ""
  }
})

/** Prints the requests for each second of CPU time of the service and of the bare server. */
const compare = Effect.fnUntraced(function* (
  figure: string,
  targets: { readonly subject: Target; readonly bare: Target },
  options: Pick<LoadOptions, "headers" | "request"> & { readonly key: string; readonly status?: number }
) {
  const run = Effect.fnUntraced(function* ({ pid, url }: Target, status: number) {
    const before = yield* cpuMicros(pid)
    const { requests } = yield* load({
      url,
      connections: CONNECTIONS,
      millis: MILLIS,
      ...options,
      status
    })
    return (requests * 1e6) / ((yield* cpuMicros(pid)) - before)
  })
  const subject = run(targets.subject, options.status ?? 200)
  const bare = run(targets.bare, 200)
  yield* interleaved(1, subject, bare)
  const { subjects, baselines } = yield* interleaved(ROUNDS, subject, bare)
  yield* print({
    bench: "lists",
    figure,
    value: median(subjects),
    unit: "requests for each second of CPU time",
    baseline: "bare node:http, JSON.stringify for each request",
    baseline_value: median(baselines)
  })
})

const get = (path: string) => () => ({ method: "GET", path })

const few = Effect.gen(function* () {
  const path = "/api/servers"
  const { service, ...targets } = yield* start(FEW, path)
  yield* compare(`${FEW} servers`, targets, { key: service.key, request: get(path) })
}).pipe(Effect.scoped)

const many = Effect.gen(function* () {
  const path = "/api/servers?include=labels"
  const { etag, ids, service, ...targets } = yield* start(MANY, path)
  const options = { key: service.key, request: get(path) }
  const [known, gzip] = [{ "if-none-match": etag }, { "accept-encoding": "gzip" }]
  yield* compare(`${MANY} servers`, targets, options)
  yield* compare(`${MANY} servers, 304`, targets, { ...options, status: 304, headers: known })
  yield* compare(`${MANY} servers, gzip`, targets, { ...options, headers: gzip })
  const change = (n: number) => ({
    method: "PATCH",
    path: `/api/servers/${ids[(n * 7919) % ids.length]}`,
    body: JSON.stringify({ labels: { n: String(n) } })
  })
  yield* load({
    url: targets.subject.url,
    key: service.key,
    connections: CONNECTIONS,
    requests: WARMUP_CHANGES,
    status: 200,
    request: change
  })
  const request = (n: number) => (n % PER_CHANGE === 0 ? change(n) : get(path)())
  yield* compare(`${MANY} servers, one of ${PER_CHANGE} requests changes one`, targets, {
    ...options,
    request
  })
}).pipe(Effect.scoped)

export const lists = Effect.andThen(few, many)
