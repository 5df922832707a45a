/** The work of one run: its servers go through the steps, a few at a time (spec 13.5). */
import { Clock, Duration, Effect, Option, Semaphore } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import { admits } from "../../contract/domain/Key.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import {
  hasRun,
  type RunServerRecord,
  type ScheduleRunRecord,
  type ScheduleSettings
} from "../../contract/domain/Schedule.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { staysUp } from "../../contract/domain/ServerStatus.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import type { Principal } from "../http/Principal.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { isQueued } from "../servers/list/summary.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { ScheduleRepo } from "../store/repos/ScheduleRepo.ts"
import { Store } from "../store/Store.ts"
import { announce } from "./scheduleRuns.ts"
import { makeAwaitReturn, makeStep, RETURN, StepFailed, starts, stops } from "./steps.ts"

export interface RunContext {
  readonly run: ScheduleRunRecord
  readonly settings: ScheduleSettings
  readonly principal: Principal | undefined
}

/** Stores the progress of servers. A failure is an event. */
const makeSave = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* ScheduleRepo
  const store = yield* Store

  return Effect.fnUntraced(function* ({ run, settings }: RunContext, server: RunServerRecord) {
    const { reason, server_id, state } = server
    const write = Effect.gen(function* () {
      yield* repo.saveServer(server)
      if (state !== "failed") return
      const news = { run, name: settings.name, state, reason }
      yield* announce(server_id, index.factsOf(server_id), news)
    })
    yield* store.write(write)
    return server
  })
})

/** Whether a server meets the condition of a schedule; returns why not. */
const makeUnmet = Effect.gen(function* () {
  const servers = yield* ServerManager
  return Effect.fnUntraced(function* (
    { only_if: { min_uptime, status } = {} }: ScheduleSettings,
    record: ServerRecord
  ) {
    if (status !== undefined && record.status !== status) return `it is ${record.status}`
    if (min_uptime === undefined) return undefined
    const stats = yield* Effect.option(servers.stats(record.id, { update_disk_usage: false }))
    const uptime = Option.getOrUndefined(stats)?.uptime ?? null
    return uptime !== null && uptime >= min_uptime * 1000
      ? undefined
      : `it has not been up for ${min_uptime} s`
  })
})

/** Whether a node is about to start a server again, or has begun to and the run is for running servers only. */
const returns = ({ only_if }: ScheduleSettings, record: ServerRecord): boolean =>
  isQueued(record) || (record.status === "starting" && only_if?.status === "running")

/** Starts servers again that a chain has stopped. */
const makeStartAgain = Effect.gen(function* () {
  const servers = yield* ServerManager
  /** Returns the reason of the server, with the failure of its start. */
  return ({ reason, server_id, stopped }: RunServerRecord) =>
    stopped
      ? Effect.match(servers.power(server_id, "start"), {
          onFailure: ({ detail }) => `${reason ?? ""}; it was not started again: ${detail}`,
          onSuccess: () => reason
        })
      : Effect.succeed(reason)
})

/** The reason of a server that is under way: what its step waits for, in place of why an earlier one has failed. */
const waitsFor = (step: number, what: string) => `step ${step + 1} waits: ${what}`
const isWait = (reason: string | null) => reason !== null && /^step \d+ waits: /.test(reason)

/** Makes the chain of one server. */
const makeChain = Effect.gen(function* () {
  const index = yield* ServerIndex
  const doStep = yield* makeStep
  const save = yield* makeSave
  const startAgain = yield* makeStartAgain

  const recordOf = Effect.fnUntraced(function* ({ principal }: RunContext, { server_id }: RunServerRecord) {
    const record = index.get(server_id)
    if (record === undefined) return yield* new StepFailed({ reason: "it was deleted" })
    if (!admits(principal?.restriction, record))
      return yield* new StepFailed({ reason: "the key of the schedule no longer reads it" })
    return record
  })

  /** Ends the chain; a server that it has stopped is started again, unless all steps are done. */
  const end = Effect.fnUntraced(function* (at: RunContext, server: RunServerRecord) {
    if (server.reason === null) return yield* save(at, { ...server, state: "done" })
    const reason = yield* startAgain(server)
    return yield* save(at, { ...server, state: "failed", stopped: false, reason: reason ?? server.reason })
  })

  return Effect.fnUntraced(function* (
    at: RunContext,
    begun: RunServerRecord
  ): Effect.fn.Return<void, Unavailable> {
    const { run, settings } = at
    let server = isWait(begun.reason) ? { ...begun, reason: null } : begun
    while (server.step < settings.steps.length) {
      const step = settings.steps[server.step]
      if (step === undefined) break
      const isRepeated = server.begun_at !== null
      const outcome = yield* Effect.result(
        Effect.gen(function* () {
          const record = yield* recordOf(at, server)
          if (!isRepeated) {
            const begun_at = yield* Clock.currentTimeMillis
            const stopped = server.stopped || (stops(step) && staysUp(record))
            server = yield* save(at, { ...server, begun_at, stopped })
          }
          yield* doStep({
            ...{ run, name: settings.name, server, record, step, isRepeated, principal: at.principal },
            saveWarned: (warned) =>
              Effect.flatMap(Effect.orDie(save(at, { ...server, warned })), (saved) =>
                Effect.sync(() => {
                  server = saved
                })
              ),
            saveWaiting: (what) => {
              const reason = what === undefined ? null : waitsFor(server.step, what)
              return Effect.asVoid(save(at, { ...server, reason: server.reason ?? reason }))
            }
          })
        })
      )
      const stopped = server.stopped && !(outcome._tag === "Success" && starts(step))
      const next = { ...server, step: server.step + 1, begun_at: null, warned: 0, stopped }
      if (outcome._tag === "Success") {
        server = yield* save(at, next)
        continue
      }
      if (outcome.failure._tag !== "StepFailed") return yield* outcome.failure
      const reason = cleanText(`step ${server.step + 1}: ${outcome.failure.reason}`)
      server = { ...server, reason: server.reason ?? reason }
      if (settings.on_failure === "stop") break
      server = yield* save(at, { ...next, reason: server.reason })
    }
    yield* end(at, server)
  })
})

/** Makes the work of a run, which continues where an earlier leader ended. */
export const makeRunWork = Effect.gen(function* () {
  const index = yield* ServerIndex
  const repo = yield* ScheduleRepo
  const store = yield* Store
  const chain = yield* makeChain
  const save = yield* makeSave
  const startAgain = yield* makeStartAgain
  const unmet = yield* makeUnmet
  const awaitReturn = yield* makeAwaitReturn

  const work = Effect.fnUntraced(function* (at: RunContext) {
    const { max_parallel, stagger } = at.settings
    const servers = yield* store.read(repo.servers([at.run.id]))
    const turns = Semaphore.makeUnsafe(1)
    let last: number | undefined
    const begun = yield* elapsedMillis
    /** Waits for the turn of a server: the stagger after the one before. */
    const turn = turns.withPermit(
      Effect.gen(function* () {
        const now = yield* elapsedMillis
        const rest = last === undefined ? 0 : last + stagger * 1000 - now
        if (rest > 0) yield* Effect.sleep(Duration.millis(rest))
        last = yield* elapsedMillis
      })
    )
    yield* Effect.forEach(
      // Servers that an earlier leader has begun come first.
      servers
        .filter(({ state }) => !hasRun(state))
        .toSorted((one, other) => (one.state === other.state ? 0 : one.state === "running" ? -1 : 1)),
      Effect.fnUntraced(function* (server) {
        if (server.state === "running") return yield* chain(at, server)
        yield* turn
        const before = index.get(server.server_id)
        if (before !== undefined && returns(at.settings, before))
          yield* awaitReturn(before.id, begun + RETURN - (yield* elapsedMillis))
        const record = index.get(server.server_id)
        const why = record === undefined ? "it was deleted" : yield* unmet(at.settings, record)
        if (why !== undefined) return yield* save(at, { ...server, state: "skipped", reason: why })
        return yield* chain(at, yield* save(at, { ...server, state: "running" }))
      }),
      { concurrency: max_parallel, discard: true }
    )
  })

  /** Ends the servers that are not over, as the run ends; those that are stopped start again. */
  const endServers = Effect.fnUntraced(function* (
    at: RunContext,
    state: "failed" | "cancelled",
    reason: string
  ) {
    const servers = yield* store.read(repo.servers([at.run.id]))
    for (const server of servers.filter((one) => !hasRun(one.state))) {
      const why = yield* startAgain({ ...server, reason })
      yield* save(at, { ...server, state, stopped: false, reason: why })
    }
  })

  /** Returns the end of a run whose servers are over. */
  const outcomeOf = Effect.fnUntraced(function* ({ run }: RunContext) {
    const servers = yield* store.read(repo.servers([run.id]))
    const failed = servers.filter(({ state }) => state === "failed")
    const [first] = failed
    if (first !== undefined) {
      const more = failed.length === 1 ? "" : `, and ${failed.length - 1} more`
      return { state: "failed" as const, reason: `server ${first.server_id}: ${first.reason ?? ""}${more}` }
    }
    const isSkipped = servers.every(({ state }) => state === "skipped")
    return isSkipped
      ? { state: "skipped" as const, reason: "no server meets the condition" }
      : { state: "done" as const, reason: null }
  })

  return { work, endServers, outcomeOf } as const
})
