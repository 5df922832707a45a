/** Reports of 100 nodes with 10 servers each, against single-row commits to a SQLite file in the same folder. */
import { join } from "node:path"
import { Effect } from "effect"
import { startService } from "../support/Service.ts"
import { interleaved, median, poll, print, sqliteCommitsPerSecond } from "./harness.ts"
import { loadInProcess } from "./loadInProcess.ts"
import { startPlainNodes } from "./startPlainNodes.ts"

const NODES = 100
const SERVERS = 1_000
const ROUNDS = 3
const COMMITS = 500

export const reports = Effect.gen(function* () {
  const service = yield* startService({ env: { MUSTER_EMBEDDED_NODE: "false" } })
  const nodes = yield* startPlainNodes(service, NODES, "20000-59999")
  const body = JSON.stringify({ blueprint_id: "demo", overrides: { save: true } })
  yield* loadInProcess({
    url: service.url,
    key: service.key,
    connections: 16,
    requests: SERVERS,
    status: 202,
    request: { method: "POST", path: "/api/servers", body }
  })
  yield* poll(
    "all servers are installed",
    Effect.map(service.request("GET", "/api/servers?status=installing&limit=1"), ({ text }) =>
      text === "[]" ? true : undefined
    ),
    { seconds: 60 }
  )
  const { baselines, subjects } = yield* interleaved(
    ROUNDS,
    nodes.report,
    sqliteCommitsPerSecond(join(service.dataDir, "plain.db"), COMMITS)
  )
  for (const [what, kind] of [
    [`acknowledged reports of ${NODES} nodes`, "reports"],
    ["commits meanwhile", "commits"]
  ] as const) {
    yield* print({
      bench: "reports",
      figure: what,
      value: median(subjects.map((round) => round[kind])),
      unit: `${kind}/s`,
      baseline: "plain SQLite, one row for each commit, synchronous=FULL",
      baseline_value: median(baselines)
    })
  }
}).pipe(Effect.scoped)
