/** Whether a container that runs can be reached: an engine without a network of its own starts it all the same. */
import type { HostConfig } from "dockerode"
import { Effect, Schedule, Schema } from "effect"
import { LaunchFailed } from "../Runtime.ts"
import { Engine } from "./Engine.ts"

const Inspected = Schema.Struct({
  State: Schema.Struct({ Running: Schema.Boolean }),
  NetworkSettings: Schema.Struct({
    Ports: Schema.NullOr(
      Schema.Record(Schema.String, Schema.NullOr(Schema.Array(Schema.Struct({ HostPort: Schema.String }))))
    )
  })
})
const decodeInspected = Schema.decodeUnknownOption(Inspected)

type Bindings = NonNullable<HostConfig["PortBindings"]>

/** The ports that were asked for, and that nothing leads to: `25565/tcp`. */
export const unpublished = (
  asked: Readonly<Record<string, ReadonlyArray<{ readonly HostPort: string }>>>,
  made: Readonly<Record<string, ReadonlyArray<{ readonly HostPort: string }> | null>>
): ReadonlyArray<string> =>
  Object.entries(asked).flatMap(([port, bindings]) =>
    bindings.every(({ HostPort }) => made[port]?.some((binding) => binding.HostPort === HostPort) === true)
      ? []
      : [port]
  )

/** Looked at again before it is believed: a container that has just ended has no ports any more. */
const again = Schedule.max([Schedule.spaced(100), Schedule.recurs(2)])

/** Fails where a container runs and its ports are not published. */
export const checkPorts = Effect.fnUntraced(function* (id: string, asked: Bindings, network: string) {
  // There a container has the machine's ports themselves.
  if (network === "host" || Object.keys(asked).length === 0) return
  const engine = yield* Engine
  const look = engine
    .call("inspect the container", (docker, abortSignal) => docker.getContainer(id).inspect({ abortSignal }))
    .pipe(
      Effect.map((found) => {
        const read = decodeInspected(found)
        if (read._tag === "None" || !read.value.State.Running) return []
        return unpublished(asked, read.value.NetworkSettings.Ports ?? {})
      })
    )
  const missing = yield* Effect.repeat(look, { while: (ports) => ports.length > 0, schedule: again })
  const [port] = missing
  if (port === undefined) return
  return yield* new LaunchFailed({
    message: `the engine has not published port ${port}: nobody could reach the server`,
    next: `let the engine have the network ${network} (it may run with --bridge=none)`
  })
})
