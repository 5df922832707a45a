/**
 * Asks for `GET /healthz` from a process of its own while something else runs: a request every 5 ms, also while
 * earlier ones have no response.
 */
import { fork } from "node:child_process"
import { Agent, get } from "node:http"
import { Effect, type Scope } from "effect"
import { percentile } from "./load.ts"

/** Milliseconds. */
const EVERY = 5

/** Delays in milliseconds. */
export interface Delays {
  readonly p99: number
  readonly longest: number
}

/** Starts the process; the effect that it returns measures while another one runs. */
export const healthProbe = (
  url: string
): Effect.Effect<
  <A, E, R>(during: Effect.Effect<A, E, R>) => Effect.Effect<Delays, E, R>,
  never,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => fork(import.meta.filename, [url])),
      (started) => Effect.sync(() => started.kill("SIGKILL"))
    )
    const ask = (what: "begin" | "end") =>
      Effect.callback<Delays>((resume) => {
        child.once("message", (delays: Delays) => resume(Effect.succeed(delays)))
        child.send(what)
      })
    return (during) => Effect.andThen(ask("begin"), Effect.andThen(during, ask("end")))
  })

const probe = (url: string, report: (delays: Delays) => void) => {
  const agent = new Agent({ keepAlive: true })
  let delays: Array<number> = []
  setInterval(() => {
    const began = performance.now()
    get(`${url}/healthz`, { agent }, (response) => {
      response.resume().once("end", () => delays.push(performance.now() - began))
    })
  }, EVERY)
  process.on("message", (what) => {
    // Requests in progress may be the late ones.
    setTimeout(() => {
      const sorted = delays.toSorted((one, other) => one - other)
      if (what === "begin") delays = []
      report({ p99: percentile(sorted, 0.99), longest: sorted.at(-1) ?? Number.NaN })
    }, 50)
  })
}

if (import.meta.main) probe(process.argv[2] ?? "", (delays) => process.send?.(delays))
