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
export const networkName = (node: string, suffix: string): string =>
  `muster-${createHash("sha256").update(node).digest("hex").slice(0, 12)}-${suffix}`

/** Makes a bridge whose containers do not reach each other, unless it exists. */
export const ensureBridge = Effect.fnUntraced(function* (
  name: string,
  labels: Readonly<Record<string, string>>,
  more: Readonly<Record<string, string>> = {}
) {
  const engine = yield* Engine
  const options = { ...more, [ICC]: "false" }
  const found = yield* engine.call("list networks", (docker, abortSignal) =>
    docker.listNetworks({
      filters: { label: Object.entries(labels).map(([key, value]) => `${key}=${value}`) },
      abortSignal
    })
  )
  const matches = ({ Name, Options }: (typeof found)[number]) =>
    Name === name && Object.entries(options).every(([key, value]) => Options?.[key] === value)
  if (found.some(matches)) return
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
})

/** Makes a network for servers and one for install jobs, isolated from each other and the engine's default bridge. */
export const makeNodeNetworks = Effect.fnUntraced(function* (node: string) {
  const engine = yield* Engine
  const lock = yield* Semaphore.make(1)
  const labelsOf = (purpose: Purpose) => ({ [LABEL.node]: node, [LABEL.network]: purpose })

  const remove = Effect.gen(function* () {
    if ((yield* listOwn(node)).length > 0) return
    for (const purpose of ["servers", "jobs"] as const) {
      yield* engine
        .call("remove a network", (docker, abortSignal) =>
          docker.getNetwork(networkName(node, purpose)).remove({ abortSignal })
        )
        .pipe(orDone)
    }
  })
  return {
    of: (purpose: Purpose) => {
      const name = networkName(node, purpose)
      return Effect.as(lock.withPermit(ensureBridge(name, labelsOf(purpose))), name)
    },
    removeUnused: Effect.suspend(() => (engine.hasAnswered() ? remove : Effect.void)).pipe(
      Effect.provideService(Engine, engine)
    )
  }
})

/** The engine's option for the source address of a bridge. */
const SOURCE = "com.docker.network.host_ipv4"

/** Returns the address from which the traffic of a server must leave, if it matters. */
export const outgoingAddress = (allocations: Allocations | undefined) =>
  allocations?.force_outgoing_ip === true ? allocations.default.ip : undefined

const nameOf = (node: string, address: string) => networkName(node, `from-${address}`)

const refuse = (address: string, reason: string) =>
  new LaunchFailed({ message: `traffic cannot leave from ${address}: ${reason}` })

/** Makes a bridge for each allocated address from which traffic leaves, on demand, and removes unused ones. */
export const makeOutgoing = Effect.fnUntraced(function* (node: string) {
  const engine = yield* Engine
  const lock = yield* Semaphore.make(1)
  /** Whether such networks may exist; an earlier process may have left some. */
  let mayExist = true

  const listed = Effect.fnUntraced(function* (label: ReadonlyArray<string>) {
    const found = yield* engine.call("list networks", (docker, abortSignal) =>
      docker.listNetworks({ filters: { label: [...label] }, abortSignal })
    )
    return found.filter(({ Labels }) => Labels?.[LABEL.node] === node && Labels[LABEL.outgoing] !== undefined)
  })

  const ensure = Effect.fnUntraced(function* (address: string) {
    if (!isIPv4(address)) return yield* refuse(address, "only IPv4 addresses are supported")
    if (address.startsWith("127.")) return yield* refuse(address, "it is a loopback address")
    const labels = { [LABEL.node]: node, [LABEL.outgoing]: address }
    const name = nameOf(node, address)
    yield* ensureBridge(name, labels, { [SOURCE]: address })
    return name
  })

  const tidy = Effect.gen(function* () {
    if (!mayExist) return
    const networks = yield* listed([`${LABEL.node}=${node}`])
    const used = new Set((yield* listOwn(node)).map((container) => container.outgoing))
    for (const { Id, Labels } of networks) {
      if (used.has(Labels?.[LABEL.outgoing])) continue
      yield* engine
        .call("remove a network", (docker, abortSignal) => docker.getNetwork(Id).remove({ abortSignal }))
        .pipe(orDone)
    }
    mayExist = networks.some(({ Labels }) => used.has(Labels?.[LABEL.outgoing]))
  }).pipe(Effect.provideService(Engine, engine))

  return {
    on: <A, E, R, E2, R2>(
      address: string | undefined,
      standard: Effect.Effect<string, E2, R2>,
      make: (network: string) => Effect.Effect<A, E, R>
    ) =>
      address === undefined
        ? Effect.flatMap(standard, make)
        : lock.withPermit(
            Effect.suspend(() => {
              mayExist = true
              return Effect.flatMap(ensure(address), make)
            })
          ),
    tidy: lock.withPermit(tidy)
  }
})
