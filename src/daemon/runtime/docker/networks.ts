/** The networks of a node at its engine. */
import { createHash } from "node:crypto"
import { Effect, Semaphore } from "effect"
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

/**
 * Makes a network for the servers of a node and one for its install jobs. The two are isolated from each other and from
 * the engine's default bridge.
 */
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
    /** Returns the name of the network; makes it if it is missing. */
    of: (purpose: Purpose) => {
      const name = networkName(node, purpose)
      return Effect.as(lock.withPermit(ensureBridge(name, labelsOf(purpose))), name)
    },
    /** Removes both networks if the node has no container. */
    removeUnused: Effect.suspend(() => (engine.hasAnswered() ? remove : Effect.void)).pipe(
      Effect.provideService(Engine, engine)
    )
  }
})
