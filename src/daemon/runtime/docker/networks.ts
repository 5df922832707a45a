import { createHash } from "node:crypto"
import { isIPv4 } from "node:net"
import { Effect, Semaphore } from "effect"
import type { Allocations } from "../../../contract/domain/Allocation.ts"
import { LaunchFailed } from "../Runtime.ts"
import { LABEL } from "./containerOptions.ts"
import { listOwn } from "./containers.ts"
import { Engine, orDone } from "./Engine.ts"

/** Whether the containers of a bridge reach each other, beyond published ports. */
const ICC = "com.docker.network.bridge.enable_icc"

export type Purpose = "servers" | "jobs"

/** Returns the name of a node's network; other nodes may share the engine. */
const networkName = (node: string, suffix: string): string =>
  `muster-${createHash("sha256").update(node).digest("hex").slice(0, 12)}-${suffix}`

/** The engine's option for the source address of a bridge. */
const SOURCE = "com.docker.network.host_ipv4"

/** Returns the address from which the traffic of a server must leave, if it matters. */
export const outgoingAddress = (allocations: Allocations | undefined) =>
  allocations?.force_outgoing_ip === true ? allocations.default.ip : undefined

const listed = Effect.fnUntraced(function* (label: Readonly<Record<string, string>>) {
  const engine = yield* Engine
  const filters = { label: Object.entries(label).map(([key, value]) => `${key}=${value}`) }
  return yield* engine.call("list networks", (docker, abortSignal) =>
    docker.listNetworks({ filters, abortSignal })
  )
})

/** Makes a bridge whose containers do not reach each other, unless it exists; returns its name. */
const ensureBridge = Effect.fnUntraced(function* (
  name: string,
  labels: Readonly<Record<string, string>>,
  more: Readonly<Record<string, string>> = {}
) {
  const engine = yield* Engine
  const options = { ...more, [ICC]: "false" }
  const isMade = (yield* listed(labels)).some(
    ({ Name, Options }) =>
      Name === name && Object.entries(options).every(([key, value]) => Options?.[key] === value)
  )
  if (isMade) return name
  yield* engine.call(`make the network ${name}`, (docker, abortSignal) =>
    docker.createNetwork({
      Name: name,
      CheckDuplicate: true,
      Driver: "bridge",
      Labels: { ...labels },
      Options: options,
      abortSignal
    })
  )
  return name
})

const refuse = (address: string, reason: string) =>
  new LaunchFailed({ message: `traffic cannot leave from ${address}: ${reason}` })

/** Makes the bridge of an allocated address from which traffic leaves. */
const ensureOutgoing = Effect.fnUntraced(function* (node: string, address: string) {
  if (!isIPv4(address)) return yield* refuse(address, "only IPv4 addresses are supported")
  if (address.startsWith("127.")) return yield* refuse(address, "it is a loopback address")
  const labels = { [LABEL.node]: node, [LABEL.outgoing]: address }
  return yield* ensureBridge(networkName(node, `from-${address}`), labels, { [SOURCE]: address })
})

/**
 * Makes the networks of a node on demand: one for servers and one for install jobs, isolated from each other and from
 * the engine's default bridge, unless one is `given`; and one for each address from which traffic leaves.
 */
export const makeNetworks = Effect.fnUntraced(function* (node: string, given: string | undefined) {
  const engine = yield* Engine
  const lock = yield* Semaphore.make(1)
  /** Whether networks of addresses may exist; an earlier process may have left some. */
  let mayExist = true

  const of = (purpose: Purpose) =>
    given === undefined
      ? lock.withPermit(
          ensureBridge(networkName(node, purpose), { [LABEL.node]: node, [LABEL.network]: purpose })
        )
      : Effect.succeed(given)

  const tidy = Effect.fnUntraced(
    function* (isEnd: boolean) {
      if (!mayExist && !isEnd) return
      const containers = yield* listOwn(node)
      const used = new Set(containers.map(({ outgoing }) => outgoing))
      const addresses: Array<string> = []
      for (const { Id, Labels } of yield* listed({ [LABEL.node]: node })) {
        if (Labels?.[LABEL.node] !== node) continue
        const { [LABEL.outgoing]: address } = Labels
        if (address !== undefined && used.has(address)) addresses.push(address)
        else if (address !== undefined || (isEnd && containers.length === 0))
          yield* engine
            .call("remove a network", (docker, abortSignal) => docker.getNetwork(Id).remove({ abortSignal }))
            .pipe(orDone)
      }
      mayExist = addresses.length > 0
    },
    lock.withPermit,
    Effect.provideService(Engine, engine)
  )

  return {
    of,
    /** Makes a container of a server on its network, which is not removed meanwhile. */
    on: <A, E, R>(address: string | undefined, make: (network: string) => Effect.Effect<A, E, R>) =>
      address === undefined
        ? Effect.flatMap(of("servers"), make)
        : lock.withPermit(
            Effect.suspend(() => {
              mayExist = true
              return Effect.flatMap(ensureOutgoing(node, address), make)
            })
          ),
    /** Removes the networks of addresses without containers. At the end of the node, also those for all servers. */
    tidy
  }
})
