import { Clock, Deferred, Effect, Option, Schema, type Scope } from "effect"
import { destroy, Engine, readStream } from "./Engine.ts"

const Counter = Schema.optionalKey(Schema.Finite)
const Stats = Schema.Struct({
  read: Schema.String,
  memory_stats: Schema.Struct({
    usage: Counter,
    stats: Schema.optionalKey(Schema.Struct({ total_inactive_file: Counter, inactive_file: Counter }))
  }),
  cpu_stats: Schema.Struct({ cpu_usage: Schema.Struct({ total_usage: Schema.Finite }) }),
  networks: Schema.optionalKey(
    Schema.Record(Schema.String, Schema.Struct({ rx_bytes: Schema.Finite, tx_bytes: Schema.Finite }))
  )
})
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Stats))

export interface Sample {
  /** The time of the sample, ms since the epoch. */
  readonly at: number
  readonly memory_bytes: number
  readonly cpu_ms: number
  /** Percent of one thread since the previous sample, if there was one. */
  readonly cpu_percent: number | undefined
  readonly network: { readonly rx_bytes: number; readonly tx_bytes: number }
}

/** Parses a line of the engine's stream, unless it has no sample, as at a stop. */
export const parseSample = (line: string, before: Sample | undefined): Sample | undefined => {
  const read = Option.getOrUndefined(decode(line))
  const at = Date.parse(read?.read ?? "")
  if (read === undefined || !(at > 0)) return undefined
  const { cpu_stats, memory_stats, networks } = read
  const { inactive_file, total_inactive_file } = memory_stats.stats ?? {}
  // The page cache is reclaimable; cgroup v1 and v2 name it differently.
  const cache = total_inactive_file ?? inactive_file ?? 0
  const interfaces = Object.values(networks ?? {})
  const cpu_ms = cpu_stats.cpu_usage.total_usage / 1e6
  const elapsed = before === undefined ? 0 : at - before.at
  return {
    at,
    memory_bytes: Math.max(0, (memory_stats.usage ?? 0) - cache),
    cpu_ms,
    cpu_percent:
      before === undefined || elapsed <= 0
        ? before?.cpu_percent
        : Math.max(0, Math.round(((cpu_ms - before.cpu_ms) / elapsed) * 1000) / 10),
    network: {
      rx_bytes: interfaces.reduce((sum, figures) => sum + figures.rx_bytes, 0),
      tx_bytes: interfaces.reduce((sum, figures) => sum + figures.tx_bytes, 0)
    }
  }
}

/** The longest wait for the first sample, in ms: the engine samples once per second. */
const FIRST_SAMPLE_TIMEOUT = 3000
/** The time after which samples without a reader stop, in ms. */
const IDLE_TIMEOUT = 300_000

/** Reads the engine's samples. The stream opens with the first request and then serves later ones. */
export const makeContainerStats = Effect.fnUntraced(function* (id: string, scope: Scope.Scope) {
  const engine = yield* Engine
  let open: { readonly ready: Deferred.Deferred<void> } | undefined
  let latest: Sample | undefined
  let asked = 0

  const read = (ready: Deferred.Deferred<void>) =>
    engine
      .wait("read the stats of the container", (docker) => docker.getContainer(id).stats({ stream: true }))
      .pipe(
        Effect.flatMap((stream) =>
          Effect.suspend(() => {
            let pending = ""
            return readStream(stream, (chunk) => {
              const lines = (pending + chunk.toString("utf8")).split("\n")
              pending = lines.pop() ?? ""
              for (const line of lines) latest = parseSample(line, latest) ?? latest
              if (latest?.cpu_percent !== undefined) Deferred.doneUnsafe(ready, Effect.void)
              if (latest !== undefined && latest.at - asked > IDLE_TIMEOUT) destroy(stream)
            })
          })
        ),
        Effect.catch((error) => Effect.logDebug(error.message)),
        Effect.ensuring(
          Effect.sync(() => {
            open = undefined
            latest = undefined // a sample after a gap does not cover the time before
            Deferred.doneUnsafe(ready, Effect.void)
          })
        )
      )

  /** The latest sample, if there is one. */
  return Effect.gen(function* () {
    asked = yield* Clock.currentTimeMillis
    if (open === undefined) {
      open = { ready: Deferred.makeUnsafe<void>() }
      yield* Effect.forkIn(read(open.ready), scope)
    }
    yield* Effect.timeoutOption(Deferred.await(open.ready), FIRST_SAMPLE_TIMEOUT)
    return latest
  })
})
