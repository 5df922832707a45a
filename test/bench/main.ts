/**
 * Benches of the service: `npm run bench` runs all, `npm run bench -- reads idle` some. Each figure is one line of JSON
 * on standard output, with its baseline from the same run. No bench passes or fails by a time.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect } from "effect"
import { backups } from "./backups.ts"
import { churn } from "./churn.ts"
import { creates } from "./creates.ts"
import { dashboard } from "./dashboard.ts"
import { distinct } from "./distinct.ts"
import { events } from "./events.ts"
import { files } from "./files.ts"
import { BenchFailed } from "./harness.ts"
import { idle } from "./idle.ts"
import { largeFolder } from "./largeFolder.ts"
import { lists } from "./lists.ts"
import { overlay } from "./overlay.ts"
import { pipelining } from "./pipelining.ts"
import { placement } from "./placement.ts"
import { reads } from "./reads.ts"
import { removal } from "./removal.ts"
import { reports } from "./reports.ts"
import { scaling } from "./scaling.ts"
import { stalls } from "./stalls.ts"
import { start } from "./start.ts"
import { streams } from "./streams.ts"

const benches: Record<string, Effect.Effect<void, { readonly message: string }>> = {
  backups,
  pipelining,
  placement,
  reads,
  lists,
  events,
  streams,
  creates,
  reports,
  start,
  idle,
  overlay,
  removal,
  churn,
  distinct,
  dashboard,
  stalls,
  scaling,
  largeFolder,
  files
}

/** Minutes of parts that take more than {@link MINUTES}. */
const minutesOf: Readonly<Record<string, number>> = { backups: 30, files: 30 }
const MINUTES = 5

const names = Object.keys(benches)
const asked = process.argv.slice(2)

Effect.gen(function* () {
  const unknown = asked.find((name) => !names.includes(name))
  if (unknown !== undefined) {
    return yield* new BenchFailed({ message: `there is no bench ${unknown}; there are ${names.join(", ")}` })
  }
  const parts = Object.entries(benches).filter(([name]) => asked.length === 0 || asked.includes(name))
  const [, failed] = yield* Effect.partition(parts, ([name, bench]) =>
    bench.pipe(
      Effect.timeoutOrElse({
        duration: `${minutesOf[name] ?? MINUTES} minutes`,
        orElse: () =>
          Effect.fail(new BenchFailed({ message: `not done within ${minutesOf[name] ?? MINUTES} minutes` }))
      }),
      Effect.tapError((error) => Console.error(`${name}: ${error.message}`)),
      Effect.mapError(() => name)
    )
  )
  if (failed.length > 0) return yield* new BenchFailed({ message: `failed: ${failed.join(", ")}` })
}).pipe(
  Effect.catch(({ message }) =>
    Effect.andThen(
      Console.error(message),
      Effect.sync(() => {
        process.exitCode = 1
      })
    )
  ),
  NodeRuntime.runMain
)
