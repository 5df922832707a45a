/**
 * Delay of `GET /healthz` and the longest turn of the event loop, beside the heaviest requests with 100,000 servers, each
 * alone, against both without any (spec 1.9).
 */
import { join } from "node:path"
import { Effect } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { print } from "./harness.ts"
import { healthProbe } from "./healthProbe.ts"
import { heavyRequests, own } from "./heavyRequests.ts"
import { load } from "./load.ts"
import { seedServers } from "./seed.ts"
import { longestTurn } from "./turnProbe.ts"

const SERVERS = 100_000
const turnProbe = join(import.meta.dirname, "turnProbe.ts")

export const stalls = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const dataDir = join(folder, "data")
  const ids = yield* seedServers(dataDir, SERVERS, { known: true, own, perNode: 1000 })
  const { env } = yield* definitions({
    software: { "paper.yml": softwareFile("paper") },
    blueprints: {
      "survival.yml": blueprintFile("survival", "paper", { rest: { state: { env: { NUMBER: "0" } } } })
    }
  })
  const service = yield* startService({
    dataDir,
    env: {
      MUSTER_EMBEDDED_NODE: "false",
      NODE_OPTIONS: `--max-semi-space-size=8 --import ${turnProbe}`,
      ...env
    }
  })
  const limited: string = (yield* service.request("POST", "/api/keys", {
    body: { name: "limited", scope: "ReadOnly", labels: { team: "team-1" } }
  })).json.key
  const beside = yield* healthProbe(service.url)
  const measured = <E>(during: Effect.Effect<unknown, E>) =>
    Effect.suspend(() => {
      const { length } = service.output()
      return Effect.map(beside(during), (delays) => ({
        "p99 of GET /healthz": delays.p99,
        "longest GET /healthz": delays.longest,
        "longest turn": longestTurn(service.output().slice(length))
      }))
    })
  yield* measured(Effect.sleep("1 second"))
  const idle = Object.entries(yield* measured(Effect.sleep("5 seconds")))

  for (const request of heavyRequests(limited, ids)) {
    const { body, key = service.key, method = "GET", name, path, status = 200 } = request
    const sent = load({
      url: service.url,
      key,
      connections: 1,
      requests: 1,
      status,
      request: () => ({ method, path, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })
    })
    const figures = Object.values(yield* measured(sent))
    for (const [at, [figure, baseline_value]] of idle.entries()) {
      yield* print({
        bench: "stalls",
        figure: `${name}: ${figure}`,
        value: figures[at] ?? Number.NaN,
        unit: "ms",
        baseline: "idle",
        baseline_value
      })
    }
  }
}).pipe(Effect.scoped)
