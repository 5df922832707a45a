import { assert, describe, it } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { CGROUP_LIMITS } from "../../src/daemon/runtime/cgroup.ts"
import { freePorts, isFree } from "../support/ports.ts"
import { harness, until } from "./support.ts"

/** Listens on addresses, as `["tcp", port, ip]`. */
const listens = (sockets: ReadonlyArray<readonly [kind: "tcp" | "udp", port: number, ip: string]>) => {
  const script = `
    const sockets = ${JSON.stringify(sockets)};
    for (const [kind, port, ip] of sockets.toReversed())
      if (kind === "tcp") require("net").createServer().listen(port, ip);
      else require("dgram").createSocket(ip.includes(":") ? "udp6" : "udp4").bind(port, ip);
    setTimeout(() => console.log("ready"), 100);
    process.stdin.once("data", () => process.exit(0))`
  return `${process.execPath} -e '${script.replaceAll("\n", " ")}'`
}

describe("operations, warnings of a server", () => {
  it.live("a server that listens on all addresses instead of its own has a warning, logged once", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const { daemon, running } = yield* harness({}, undefined, log)
      const own = yield* freePorts(4)
      const [other, third, fourth] = [own + 1, own + 2, own + 3]
      const allocations = { default: { ip: "127.0.0.1", port: own }, mappings: { "127.0.0.1": [own] } }
      const detailsOf = Effect.fnUntraced(function* (
        sockets: Parameters<typeof listens>[0],
        given: object = allocations
      ) {
        const id = yield* running({ process: { invocation: listens(sockets) }, allocations: given })
        const [[, port = 0] = []] = sockets
        yield* Effect.repeat(isFree(port), { while: (free) => free, schedule: Schedule.spaced(50) })
        const { warnings = [] } = yield* daemon.stats(id, { update_disk_usage: false })
        return warnings.filter(({ code }) => code === "listens_on_all_addresses").map(({ detail }) => detail)
      })
      const all = yield* detailsOf([
        ["tcp", own, "0.0.0.0"],
        ["udp", own, "0.0.0.0"],
        ["tcp", other, "::"],
        ["udp", third, "0.0.0.0"]
      ])
      const ports = `TCP ${own}, TCP ${other}, UDP ${own}`
      const detail = `the server listens on all addresses of the node (${ports}), not only on 127.0.0.1: set the address in its configuration`
      assert.deepStrictEqual(all, [detail])
      const lines = () => log.filter((line) => line.includes("listens on all addresses"))
      yield* until("it is logged", () => lines().length > 0)
      assert.strictEqual(lines().length, 1)
      // A check may find the server before it has bound all its ports.
      assert.match(
        lines()[0] ?? "",
        /of the node \((TCP|UDP) \d+.*\), not only on 127\.0\.0\.1: set the address/
      )
      assert.deepStrictEqual(yield* detailsOf([["tcp", own, "127.0.0.1"]]), [], "its own address")
      const anywhere = { default: { ip: "0.0.0.0", port: fourth }, mappings: { "0.0.0.0": [fourth] } }
      assert.deepStrictEqual(
        yield* detailsOf([["tcp", fourth, "0.0.0.0"]], anywhere),
        [],
        "all addresses are its own"
      )
    }).pipe(Effect.scoped)
  )

  it.live(
    "without cgroups, the node and each server with such a limit name the limits that are not enforced",
    () =>
      Effect.gen(function* () {
        const { daemon, notes, running } = yield* harness({ cgroupRoot: "/nonexistent" })
        const warningsOf = Effect.fnUntraced(function* (limits: object) {
          const id = yield* running({ definition: { limits } })
          return (yield* daemon.stats(id, { update_disk_usage: false })).warnings
        })
        const detail = "the node does not enforce memory_limit, cpu_limit"
        assert.deepStrictEqual(yield* warningsOf({ memory_limit: 64, cpu_limit: 50, disk_space: 100 }), [
          { code: "limits_not_enforced", detail }
        ])
        assert.strictEqual(yield* warningsOf({ memory_limit: 0, threads: "", swap: -1 }), undefined)
        assert.deepStrictEqual(notes.registrations.at(-1)?.system.not_enforced, CGROUP_LIMITS)
      }).pipe(Effect.scoped)
  )
})
