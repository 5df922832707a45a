/** The networks that a node makes at its engine. */
import { createHash } from "node:crypto"
import { Effect, Semaphore } from "effect"
import { LABEL } from "./containerOptions.ts"
import { listOwn } from "./containers.ts"
import { Engine, orDone } from "./Engine.ts"

/** Whether the containers of a bridge reach each other, beyond the ports that are published. */
const ICC = "com.docker.network.bridge.enable_icc"

/** What a network of a node is for: its servers, or its install jobs. */
export type Purpose = "servers" | "jobs"

/** Name of a network of a node at its engine, which other nodes may share. */
export const networkName = (node: string, suffix: string): string =>
  `muster-${createHash("sha256").update(node).digest("hex").slice(0, 12)}-${suffix}`

/** Makes a bridge whose containers do not reach each other, unless there is this one already. */
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
  const isIt = ({ Name, Options }: (typeof found)[number]) =>
    Name === name && Object.entries(options).every(([key, value]) => Options?.[key] === value)
  if (found.some(isIt)) return
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
 * A network for the servers of a node and one for its install jobs: neither reach each other, nor the default bridge
 * of the engine.
 */
export const makeNodeNetworks = Effect.fnUntraced(function* (node: string) {
  const engine = yield* Engine
  const oneAtATime = yield* Semaphore.make(1)
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
    /** The name of the network, which is made if there is none. */
    of: (purpose: Purpose) => {
      const name = networkName(node, purpose)
      return Effect.as(oneAtATime.withPermit(ensureBridge(name, labelsOf(purpose))), name)
    },
    /** Removes both networks if the node has no container. */
    removeUnused: Effect.suspend(() => (engine.hasAnswered() ? remove : Effect.void)).pipe(
      Effect.provideService(Engine, engine)
    )
  }
})
