import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import type { Rollout } from "../../src/contract/domain/Rollout.ts"
import { type Definitions, definitions } from "../support/definitions.ts"
import { type EventStream, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { endLeftovers } from "../support/processes.ts"
import { changeRollout, fleetFiles, publish, rollOut, rolloutIs, rolloutOf } from "../support/rollouts.ts"
import { type Service, startService } from "../support/Service.ts"
import { create, expectStatus, logsOf, running, statusOf } from "../support/servers.ts"

const SERVERS = 30
/** The place of the server that does not start with version two. */
const BROKEN = 6

interface Fleet {
  readonly api: Service & { readonly folders: Definitions }
  readonly ids: ReadonlyArray<string>
  /** The server that does not start with version two. */
  readonly broken: ServerId
  readonly stream: EventStream
}

/** Starts a service with running servers of version one. */
const startFleet = Effect.gen(function* () {
  const folders = yield* definitions(fleetFiles)
  const service = yield* startService({
    env: {
      ...folders.env,
      MUSTER_OVERCOMMIT_MEMORY: "1000",
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:31000-31199"
    }
  })
  yield* Effect.addFinalizer(() => endLeftovers(service.dataDir))
  const api = { ...service, folders }
  const ids = yield* Effect.forEach(
    Array.from({ length: SERVERS }, (_, n) => n),
    (n) =>
      create(api, "fleet", {
        start: true,
        ...(n === BROKEN ? { overrides: { env: { BROKEN: "two" } } } : {})
      }),
    { concurrency: 5 }
  )
  yield* allRun(api, ids)
  const broken = ids[BROKEN]
  if (broken === undefined) return yield* Effect.die(new Error("there is no such server"))
  return { api, ids, broken, stream: yield* subscribe(api) } satisfies Fleet
})

interface Listed {
  readonly id: string
  readonly status: string
  readonly version: string
  readonly limits: { readonly memory_limit: number }
}

const listOf = (api: Pick<Service, "request">): Effect.Effect<ReadonlyArray<Listed>, never> =>
  Effect.orDie(
    Effect.map(
      expectStatus(api, 200, "GET", "/api/servers?include=status,software,limits"),
      ({ json }) => json
    )
  )

const allRun = (api: Service, ids: ReadonlyArray<string>) =>
  eventually(
    Effect.map(listOf(api), (all) => all.filter(({ status }) => status === "running").length),
    (running) => running === ids.length,
    "60 seconds"
  )

/** Servers by version and status. */
const tally = (all: ReadonlyArray<Listed>) =>
  Object.fromEntries(
    Array.from(
      Map.groupBy(all, ({ limits, status, version }) => `${version} ${limits.memory_limit} MiB ${status}`),
      ([key, some]) => [key, some.length]
    )
  )

/** The most servers that did not run at a time, by the events. */
const mostDown = ({ stream }: Fleet): number => {
  const down = new Set<string>()
  let most = 0
  for (const { Data, Topic } of stream.events()) {
    if (Topic !== "status") continue
    if (Data.payload === "running") down.delete(Data.server_id)
    else down.add(Data.server_id)
    most = Math.max(most, down.size)
  }
  return most
}

const brief = ({ done, failed_total, rolled_back, state, under_way }: Rollout): string =>
  `${state}: ${done} done, ${under_way} under way, ${failed_total} failed${rolled_back === undefined ? "" : `, ${rolled_back} rolled back`}`

/** Polls a rollout until it has a state; prints its steps. */
const observe = Effect.fnUntraced(function* (api: Service, id: string, state: Rollout["state"]) {
  const steps: Array<string> = []
  const last = yield* eventually(
    Effect.tap(rolloutOf(api, id), (rollout) =>
      Effect.sync(() => {
        const step = brief(rollout)
        if (steps.at(-1) !== step) steps.push(step)
        assert.isAtMost(rollout.under_way, rollout.max_parallel)
      })
    ),
    (rollout) => rollout.state === state,
    "120 seconds"
  )
  yield* Effect.sync(() => process.stdout.write(`  ${steps.join("\n  ")}\n`))
  return last
})

/** The versions that the console of a server shows, oldest first. */
const versionsOf = (api: Service, id: string) =>
  Effect.map(logsOf(api, id), (lines) => lines.flatMap((line) => /^version (\w+)$/.exec(line)?.[1] ?? []))

describe("spec 3.13: running servers, five at a time, one does not come up", () => {
  it.live(
    "pause: the rollout stops at the failure, resume changes the others, and it ends once the failure is gone",
    () =>
      Effect.gen(function* () {
        const fleet = yield* startFleet
        const { api, broken, ids } = fleet
        yield* publish(api, "two", 80)
        const { id } = yield* rollOut(api, { selector: { blueprint_id: "fleet" }, max_parallel: 5 })
        const paused = yield* observe(api, id, "paused")
        const failure = { server_id: broken, reason: "crashed: exit code 3" }
        assert.deepStrictEqual(paused.failed, [failure])
        assert.strictEqual(paused.reason, `server ${broken} failed: crashed: exit code 3`)
        // Those under way are completed, no other one begins.
        const settled = yield* eventually(rolloutOf(api, id), ({ under_way }) => under_way === 0)
        // How many are completed by then depends on how long the failure takes.
        assert.isBelow(settled.done, SERVERS - 1)
        assert.deepStrictEqual(tally(yield* listOf(api)), {
          "two 80 MiB running": settled.done,
          "two 80 MiB offline": 1,
          "one 64 MiB running": SERVERS - 1 - settled.done
        })
        // The failed server is tried again, last.
        assert.strictEqual((yield* changeRollout(api, id, "resume")).status, 200)
        yield* observe(api, id, "paused")
        const again = yield* eventually(rolloutOf(api, id), ({ under_way }) => under_way === 0)
        assert.deepStrictEqual([again.done, again.failed], [SERVERS - 1, [failure]])
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${broken}`)
        yield* changeRollout(api, id, "resume")
        const done = yield* observe(api, id, "done")
        assert.deepStrictEqual([done.total, done.done, done.failed], [SERVERS, SERVERS, []])
        assert.deepStrictEqual(tally(yield* listOf(api)), { "two 80 MiB running": SERVERS - 1 })
        // Each server was restarted once.
        for (const one of ids.filter((server) => server !== broken)) {
          assert.deepStrictEqual(yield* versionsOf(api, one), ["one", "two"])
        }
        assert.isAtMost(mostDown(fleet), 6)
      }).pipe(Effect.scoped),
    240_000
  )

  it.live(
    "rollback: every server that was changed runs with its earlier definition again, the failed one too",
    () =>
      Effect.gen(function* () {
        const fleet = yield* startFleet
        const { api, broken } = fleet
        yield* publish(api, "two", 80)
        const { id } = yield* rollOut(api, {
          selector: { blueprint_id: "fleet" },
          max_parallel: 5,
          on_failure: "rollback"
        })
        const back = yield* observe(api, id, "rolled_back")
        assert.deepStrictEqual(back.failed, [{ server_id: broken, reason: "crashed: exit code 3" }])
        assert.deepStrictEqual(tally(yield* listOf(api)), { "one 64 MiB running": SERVERS })
        assert.deepStrictEqual(yield* versionsOf(api, broken), ["one", "two", "one"])
        assert.isAtMost(mostDown(fleet), 5)
        // The servers are free for another rollout.
        yield* publish(api, "three", 80)
        const next = yield* rollOut(api, { selector: { blueprint_id: "fleet" }, max_parallel: SERVERS })
        assert.strictEqual((yield* observe(api, next.id, "done")).done, SERVERS)
        yield* rolloutIs(api, next.id, "done")
      }).pipe(Effect.scoped),
    240_000
  )
})

describe("spec 3.13: servers that are not saved, and servers that expire", () => {
  it.live(
    "a restart keeps a server that is not saved; its crash is a failure; a server that expires is done",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(fleetFiles)
        const service = yield* startService({
          env: { ...folders.env, MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:31200-31219" }
        })
        yield* Effect.addFinalizer(() => endLeftovers(service.dataDir))
        const api = { ...service, folders }
        const kept = yield* running(api, "passing")
        const broken = yield* running(api, "passing", { overrides: { env: { BROKEN: "two" } } })
        const expires = yield* create(api, "endless", { expires_in: 10 })
        yield* publish(api, "two")
        const selector = { ids: [kept, broken, expires] }
        const { id } = yield* rollOut(api, { selector, on_failure: "continue" })
        const failed = yield* observe(api, id, "failed")
        assert.deepStrictEqual(
          failed.failed.map(({ server_id }) => server_id),
          [broken]
        )
        // The crash may be seen before the deletion.
        assert.match(failed.failed[0]?.reason ?? "", /^crashed: exit code 3/)
        assert.deepStrictEqual([failed.done, failed.total], [2, 3])
        assert.deepStrictEqual(tally(yield* listOf(api)), { "two 64 MiB running": 1 })
        assert.deepStrictEqual(yield* versionsOf(api, kept), ["one", "two"])
        assert.strictEqual(yield* statusOf(api, expires), "gone")
      }).pipe(Effect.scoped),
    120_000
  )
})
