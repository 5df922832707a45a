import type { LookupAddress, lookup } from "node:dns"
import { createServer } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { IpNetwork } from "effect/net"
import { CircuitBreaker } from "effect/persistence"
import { vi } from "vitest"
import { NodeId, ServerId } from "../../../../src/contract/domain/Id.ts"
import { makeDaemonCalls, makeRemoteDaemon } from "../../../../src/controlPlane/nodes/remote/RemoteDaemon.ts"
import { makeNodeNetworks } from "../../../../src/controlPlane/nodes/remote/remoteSocket.ts"
import { connectTimeoutClient } from "../../../../src/shared/net/connectTimeoutClient.ts"
import { definitions } from "../../../support/definitions.ts"
import { eventually } from "../../../support/eventually.ts"
import { alone, nodeKey, startNode } from "../../../support/nodes.ts"
import { startService } from "../../../support/Service.ts"

const networks = (...listed: ReadonlyArray<string>) =>
  makeNodeNetworks(listed.map(IpNetwork.fromStringUnsafe))

/** A resolver that returns these addresses for any name. */
const resolver = (...addresses: ReadonlyArray<string>) =>
  ((_: string, __: unknown, done: (error: null, found: unknown) => void) =>
    done(
      null,
      addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }))
    )) as unknown as typeof lookup // The overloads of lookup have no type that a stub could have.

/** The address of a daemon, which records connections. */
const listening = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly connections: () => number; readonly close: () => void }>(
    (resume) => {
      let connections = 0
      const server = createServer((_, response) => response.writeHead(500).end())
      server.on("connection", () => {
        connections += 1
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        resume(
          Effect.succeed({
            port: typeof address === "object" && address !== null ? address.port : 0,
            connections: () => connections,
            close: () => {
              server.closeAllConnections()
              server.close()
            }
          })
        )
      })
    }
  ),
  ({ close }) => Effect.sync(close)
)

const daemonAt = (url: string, where: ReturnType<typeof makeNodeNetworks>) =>
  Effect.gen(function* () {
    const client = yield* makeDaemonCalls
    const breaker = yield* CircuitBreaker.CircuitBreaker
    return makeRemoteDaemon({
      node_id: NodeId.make("n"),
      target: () => ({ url, token: "t" }),
      client,
      breaker,
      networks: where,
      fork: Effect.runFork
    })
  }).pipe(
    Effect.provide(
      Layer.merge(
        connectTimeoutClient({ connections: 4, networks: where }),
        CircuitBreaker.layer({ tripPolicy: CircuitBreaker.consecutive(99), openDuration: "1 hour" }).pipe(
          Layer.provide(CircuitBreaker.layerStoreMemory())
        )
      )
    )
  )

describe("MUSTER_NODE_NETWORKS: allowed networks of nodes", () => {
  it.each([
    "169.254.169.254",
    "169.254.0.1",
    "::ffff:169.254.169.254",
    "[::ffff:a9fe:a9fe]",
    "64:ff9b::169.254.169.254",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1"
  ])("unset: %s is refused", (host) => {
    assert.match(networks().refusal(host) ?? "", /link-local/)
    assert.isDefined(networks("10.0.0.0/8").refusal(host))
  })

  it.each([
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b:1::a9fe:a9fe",
    "2001:0:a9fe:a9fe::",
    "2002:a9fe:a9fe::"
  ])("unset: %s, which holds an IPv4 address, is refused", (host) => {
    assert.match(networks().refusal(host) ?? "", /holds an IPv4 address/)
    assert.isUndefined(networks("::/0").refusal(host))
    assert.isUndefined(networks().refusal("::1"))
  })

  it.each(["fd00:ec2::254", "100.100.100.200", "::ffff:100.100.100.200", "192.0.0.192"])(
    "unset: %s, the metadata service of a cloud, is refused",
    (host) => {
      assert.match(networks().refusal(host) ?? "", /metadata service/)
      assert.isDefined(networks("10.0.0.0/8").refusal(host))
      assert.isUndefined(networks("100.64.0.0/10", "192.0.0.0/24", "fd00:ec2::/32").refusal(host))
    }
  )

  it.each(["127.0.0.1", "10.0.0.7", "::1", "fd00:ec2::253", "8.8.8.8", "name.example.com"])(
    "unset: %s is allowed",
    (host) => assert.isUndefined(networks().refusal(host))
  )

  it("set: only the listed networks are allowed, link-local networks included", () => {
    const { refusal } = networks("10.0.0.0/8", "fd00::/64", "169.254.7.0/24")
    for (const host of ["10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "169.254.7.1"])
      assert.isUndefined(refusal(host))
    for (const host of ["127.0.0.1", "11.0.0.1", "::1", "fd00:0:0:1::7", "169.254.8.1"]) {
      assert.isDefined(refusal(host), host)
    }
  })

  it.effect("a host name is refused if it has addresses and none of them is allowed", () =>
    Effect.gen(function* () {
      const check = (...addresses: ReadonlyArray<string>) =>
        makeNodeNetworks([IpNetwork.fromStringUnsafe("10.0.0.0/8")], resolver(...addresses)).check(
          "http://node.example.com:5585"
        )
      yield* check("10.0.0.7")
      yield* check("10.0.0.7", "127.0.0.1")
      yield* check()
      const error = yield* Effect.flip(check("127.0.0.1", "169.254.169.254"))
      assert.match(
        error.detail,
        /^body field url: nodes may not be at http:\/\/node\.example\.com:5585: 127\.0\.0\.1 /
      )
    })
  )

  it.live("a host name that later resolves to a forbidden address is not called, and no packet is sent", () =>
    Effect.gen(function* () {
      const there = yield* listening
      const rebound = makeNodeNetworks([IpNetwork.fromStringUnsafe("10.0.0.0/8")], resolver("127.0.0.1"))
      for (const host of ["node.example.com", "127.0.0.1"]) {
        const daemon = yield* daemonAt(`http://${host}:${there.port}`, rebound)
        for (const call of [
          Effect.asVoid(daemon.system),
          Effect.asVoid(Effect.scoped(daemon.console(ServerId.make("srv_1"))))
        ]) {
          const error = yield* Effect.flip(call)
          assert.strictEqual(error._tag, "NodeUnreachable")
          if (error._tag === "NodeUnreachable" && error.reason !== undefined) {
            assert.match(error.reason, /127\.0\.0\.1 is in no network of MUSTER_NODE_NETWORKS/)
          }
        }
      }
      assert.strictEqual(there.connections(), 0)
      const allowed = makeNodeNetworks(
        [IpNetwork.fromStringUnsafe("127.0.0.0/8")],
        resolver("10.0.0.1", "127.0.0.1")
      )
      yield* Effect.flip((yield* daemonAt(`http://node.example.com:${there.port}`, allowed)).system)
      assert.strictEqual(there.connections(), 1)
    }).pipe(Effect.scoped)
  )

  it.live("a node in a forbidden network is refused, and each side logs it once", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions({ blueprints: {}, software: {} })
      const api = yield* startService({
        env: { ...alone, ...env, MUSTER_NODE_NETWORKS: "10.0.0.0/8, fd00::/8" }
      })
      const { key } = yield* nodeKey(api, "outside")
      const node = yield* startNode({ control: api.url, key, id: "outside" })
      const refusalLines = (output: string) =>
        output
          .split("\n")
          .filter((line) => line.includes("127.0.0.1 is in no network of MUSTER_NODE_NETWORKS"))
      yield* eventually(
        Effect.sync(() => [refusalLines(api.output()), refusalLines(node.output())]),
        (both) => both.every((lines) => lines.length > 0)
      )
      // Retries: the first, after 200 ms, is too early; after a second the call is refused again.
      yield* eventually(
        api.request("GET", "/api/nodes"),
        (answer) => answer.status === 200 && answer.json.length === 0
      )
      assert.strictEqual(refusalLines(api.output()).length, 1)
      assert.match(refusalLines(api.output())[0] ?? "", /WARN .*registration refused: .* node_id=outside$/)
      assert.strictEqual(refusalLines(node.output()).length, 1)
      assert.match(refusalLines(node.output())[0] ?? "", /ERROR .*the control plane refuses this node/)
    }).pipe(Effect.scoped)
  )
})

describe("host names of nodes: a name that never resolves", () => {
  type Answer = (error: NodeJS.ErrnoException | null, found: ReadonlyArray<LookupAddress>) => void
  /** A resolver that responds when the test completes it. */
  const slow = () => {
    const asked: Array<{ readonly name: string; readonly answer: Answer }> = []
    const resolve = ((name: string, _: unknown, answer: Answer) =>
      void asked.push({ name, answer })) as unknown as typeof lookup // The overloads of lookup have no type that a stub could have.
    return { asked, where: makeNodeNetworks([], resolve) }
  }
  const call = (where: ReturnType<typeof makeNodeNetworks>, name: string) => {
    const outcome: { error?: string | undefined; found?: unknown } = {}
    where.lookup(name, { all: true }, (error, found) =>
      Object.assign(outcome, error === null ? { found } : { error: error.code })
    )
    return outcome
  }
  const turn = Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
  const nothing = Object.assign(new Error("no such name"), { code: "ENOTFOUND" })
  const fakeTime = Effect.acquireRelease(
    Effect.sync(() => vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })),
    () => Effect.sync(() => vi.useRealTimers())
  )

  it.live("256 concurrent calls share one lookup and fail after 3 s; later calls fail at once", () =>
    Effect.gen(function* () {
      const time = yield* fakeTime
      const { asked, where } = slow()
      const calls = Array.from({ length: 256 }, () => call(where, "slow.example.com"))
      const other = call(where, "fast.example.com")
      assert.deepStrictEqual(
        asked.map(({ name }) => name),
        ["slow.example.com", "fast.example.com"]
      )
      asked[1]?.answer(null, [{ address: "10.0.0.7", family: 4 }])
      assert.deepStrictEqual(other.found, [{ address: "10.0.0.7", family: 4 }])
      time.advanceTimersByTime(2999)
      assert.isTrue(calls.every(({ error }) => error === undefined))
      time.advanceTimersByTime(1)
      assert.isTrue(calls.every(({ error }) => error === "ETIMEDOUT"))
      // The lookup still runs: an hour of calls starts no second lookup.
      time.advanceTimersByTime(3_600_000)
      const later = call(where, "slow.example.com")
      yield* turn
      assert.strictEqual(later.error, "ETIMEDOUT")
      assert.strictEqual(asked.length, 2)
      asked[0]?.answer(null, [{ address: "10.0.0.8", family: 4 }])
      call(where, "slow.example.com")
      assert.strictEqual(asked.length, 3)
    }).pipe(Effect.scoped)
  )

  it.live(
    "a name without an address is resolved again after 5 s; a name with an address at the next call",
    () =>
      Effect.gen(function* () {
        const time = yield* fakeTime
        const { asked, where } = slow()
        const first = call(where, "gone.example.com")
        asked[0]?.answer(nothing, [])
        assert.strictEqual(first.error, "ENOTFOUND")
        time.advanceTimersByTime(4999)
        const second = call(where, "gone.example.com")
        yield* turn
        assert.strictEqual(second.error, "ENOTFOUND")
        assert.strictEqual(asked.length, 1)
        time.advanceTimersByTime(1)
        const third = call(where, "gone.example.com")
        assert.strictEqual(asked.length, 2)
        asked[1]?.answer(null, [{ address: "10.0.0.7", family: 4 }])
        assert.deepStrictEqual(third.found, [{ address: "10.0.0.7", family: 4 }])
        call(where, "gone.example.com")
        assert.strictEqual(asked.length, 3)
      }).pipe(Effect.scoped)
  )
})
