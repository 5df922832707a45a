import { Effect } from "effect"
import {
  type ContainerPlan,
  type ContainerRules,
  containerOptions,
  droppedLimits
} from "./containerOptions.ts"
import { Engine } from "./Engine.ts"

/** Creates a container. `told`: limits that the machine cannot enforce, once they have been logged. */
export const createContainer = Effect.fnUntraced(function* (
  plan: ContainerPlan,
  rules: ContainerRules,
  told: Set<string>
) {
  const engine = yield* Engine
  const { name, ...body } = containerOptions(plan, rules)
  // Apart: the client would repeat the whole body, with its environment, in the address.
  const options = { _query: { name }, _body: body }
  const { id } = yield* engine.call("create the container", (docker, abortSignal) =>
    docker.createContainer({ ...options, abortSignal })
  )
  const made = yield* engine.call("inspect the container", (docker, abortSignal) =>
    docker.getContainer(id).inspect({ abortSignal })
  )
  const lost = droppedLimits(body.HostConfig ?? {}, made.HostConfig).filter((limit) => !told.has(limit))
  for (const limit of lost) told.add(limit)
  if (lost.length > 0)
    yield* Effect.logWarning(`the engine cannot enforce on this machine: ${lost.join(", ")}`)
  return id
})

export const startContainer = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  yield* engine.call("start the container", (docker, abortSignal) =>
    docker.getContainer(id).start({ abortSignal })
  )
})
