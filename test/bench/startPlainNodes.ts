import { join } from "node:path"
import { Effect } from "effect"
import type { Service } from "../support/Service.ts"
import { commitsOf } from "./commits.ts"
import { BenchFailed, poll, startProcess } from "./harness.ts"

const file = join(import.meta.dirname, "plainNodes.ts")

/**
 * Starts nodes without instances in a process of their own, and returns once servers can be placed on them.
 *
 * @param ports of the nodes together, such as `20000-59999`
 */
export const startPlainNodes = Effect.fnUntraced(function* (service: Service, count: number, ports: string) {
  const keys = yield* Effect.forEach(Array.from({ length: count }), (_, n) =>
    Effect.map(
      service.request("POST", "/api/keys", { body: { name: `node ${n}`, scope: "Node" } }),
      ({ json }): string => json.key
    )
  )
  const child = yield* startProcess(process.execPath, [file, service.url, ports, ...keys])
  let output = ""
  child.stdout?.on("data", (chunk: Buffer) => {
    output += chunk.toString()
  })
  for (let n = 0; n < count; n++) {
    yield* poll(
      `node plain-${n} is reachable`,
      Effect.map(service.request("GET", `/api/nodes/plain-${n}`), ({ json }) =>
        json?.connected === true ? true : undefined
      )
    )
  }
  return {
    /** Reports statuses of all servers for some seconds; returns what was acknowledged and committed in a second. */
    report: Effect.gen(function* () {
      output = ""
      const before = yield* commitsOf(service)
      child.kill("SIGUSR2")
      const [, acknowledged = "", millis = ""] = yield* poll(
        "the reports are sent",
        Effect.sync(() => /reports (\d+) (\d+)/.exec(output) ?? (child.exitCode === null ? undefined : []))
      )
      if (acknowledged === "") return yield* new BenchFailed({ message: "the nodes have ended" })
      const seconds = Number(millis) / 1000
      return {
        reports: Number(acknowledged) / seconds,
        commits: ((yield* commitsOf(service)) - before) / seconds
      }
    })
  }
})
