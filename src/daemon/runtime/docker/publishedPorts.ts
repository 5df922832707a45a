/** The check that a running container is reachable: an engine without a network starts it without an error. */
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

/** Returns the requested ports that are not published, as `25565/tcp`. */
export const unpublished = (
  asked: Readonly<Record<string, ReadonlyArray<{ readonly HostPort: string }>>>,
  made: Readonly<Record<string, ReadonlyArray<{ readonly HostPort: string }> | null>>
): ReadonlyArray<string> =>
  Object.entries(asked).flatMap(([port, bindings]) =>
    bindings.every(({ HostPort }) => made[port]?.some((binding) => binding.HostPort === HostPort) === true)
      ? []
      : [port]
  )

/** Checked repeatedly: a container that has just ended has no ports. */
const retries = Schedule.max([Schedule.spaced(100), Schedule.recurs(2)])

/** Fails if a container runs and its ports are not published. */
export const checkPorts = Effect.fnUntraced(function* (id: string, asked: Bindings, network: string) {
  // With the host network, a container uses the ports of the host.
  if (network === "host" || Object.keys(asked).length === 0) return
  const engine = yield* Engine
  const missingPorts = engine
    .call("inspect the container", (docker, abortSignal) => docker.getContainer(id).inspect({ abortSignal }))
    .pipe(
      Effect.map((found) => {
        const read = decodeInspected(found)
        if (read._tag === "None" || !read.value.State.Running) return []
        return unpublished(asked, read.value.NetworkSettings.Ports ?? {})
      })
    )
  const missing = yield* Effect.repeat(missingPorts, {
    while: (ports) => ports.length > 0,
    schedule: retries
  })
  const [port] = missing
  if (port === undefined) return
  return yield* new LaunchFailed({
    message: `the engine has not published port ${port}: the server is not reachable`,
    next: `enable the network ${network} of the engine (it may run with --bridge=none)`
  })
})
