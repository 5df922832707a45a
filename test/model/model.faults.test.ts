import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import { eventually } from "../support/eventually.ts"
import { seeded } from "../support/random.ts"
import { makeClients } from "./clients.ts"
import { makeFaultInjector } from "./faultInjector.ts"
import type { History } from "./History.ts"
import { intrude } from "./intruder.ts"
import { invariants } from "./invariants/index.ts"
import { makeRecorder } from "./Recorder.ts"
import { pendingWork, readFinished, readSnapshot, watchOperations } from "./readSnapshot.ts"
import type { Snapshot } from "./Snapshot.ts"
import { schedule } from "./schedule.ts"
import { serverActivity } from "./serverActivity.ts"
import { CLIENTS, faultSeconds, KEEP_SECONDS, REPLICAS, SETTLE_TIMEOUT, seconds, seed } from "./settings.ts"
import { makeSetup, nodeIds } from "./setup.ts"

const MOST_SHOWN = 12

describe("design: every acknowledged change survives any fault, and all replicas publish the same events", () => {
  it.live(
    `random operations and faults on ${REPLICAS} replicas (MUSTER_TEST_SEED=${seed} MUSTER_TEST_MODEL_SECONDS=${seconds})`,
    () =>
      Effect.gen(function* () {
        const recorder = yield* makeRecorder(seed)
        const setup = yield* makeSetup
        recorder.begin()
        const random = seeded(seed)
        const plan = schedule(random, faultSeconds * 1_000, { replicas: REPLICAS, nodes: nodeIds.length })
        recorder.line({ seed, seconds, plan })
        for (const { brain, id } of setup.nodes)
          brain.backups.observe = (event) => recorder.nodeTask({ node: id, ...event })
        const watching = yield* Effect.forkChild(watchOperations(setup, recorder))
        const clients = makeClients(
          recorder,
          setup.replicas.map(({ url }) => url),
          setup.writeBlueprints
        )
        let isOver = false
        const working = yield* Effect.forkChild(
          Effect.forEach(
            Array.from({ length: CLIENTS }, (_, index) => index),
            (index) => clients.client(`client ${index}`, seeded(seed + 1 + index), () => isOver),
            { concurrency: "unbounded", discard: true }
          )
        )
        const intruding = yield* Effect.forkChild(
          intrude({
            recorder,
            urls: setup.replicas.map(({ url }) => url),
            key: setup.limitedKey,
            servers: clients.servers,
            random: seeded(seed + 400),
            isOver: () => isOver
          })
        )
        const activity = yield* Effect.forkChild(serverActivity(setup, recorder, seeded(seed + 500)))
        const found = (problems: ReadonlyArray<string>, beside?: Snapshot) =>
          Effect.sync(() => {
            if (problems.length === 0) return
            recorder.keepFile({
              "end.json": JSON.stringify(
                { problems, end: beside },
                (_, value) => (value instanceof Map ? [...value] : value),
                1
              ),
              ...Object.fromEntries(setup.replicas.map(({ index, log }) => [`replica-${index}.log`, log()]))
            })
            const shown = problems.slice(0, MOST_SHOWN)
            assert.fail(
              [
                `${problems.length} violations; MUSTER_TEST_SEED=${seed} MUSTER_TEST_MODEL_SECONDS=${seconds}; what happened: ${recorder.path}`,
                ...shown
              ].join("\n")
            )
          })

        yield* Effect.tapError(makeFaultInjector(setup, recorder)(plan), ({ message }) => found([message]))
        recorder.line({ note: "every fault is healed" })
        isOver = true
        yield* Fiber.interrupt(activity)
        yield* Fiber.join(working)
        yield* Fiber.join(intruding)
        yield* clients.undrainAll
        yield* clients.keepAll
        yield* clients.abortRollouts
        yield* clients.pauseSchedules

        const rest = yield* Effect.result(
          eventually(
            Effect.map(readSnapshot(setup), (snapshot) => {
              const under = pendingWork(setup, snapshot)
              recorder.line({ under })
              const subscribers = setup.subscribers.map(({ name, received }) => ({
                name,
                received: [...received()]
              }))
              return { snapshot, under, subscribers }
            }),
            ({ under }) => under.length === 0,
            SETTLE_TIMEOUT
          )
        )
        if (rest._tag === "Failure") {
          const snapshot = yield* readSnapshot(setup)
          const under = pendingWork(setup, snapshot).map((what) => `not at rest: ${what}`)
          return yield* found(under, snapshot)
        }
        recorder.line({ note: "all is at rest" })
        yield* clients.repeatAll(random)
        yield* Fiber.interrupt(watching)
        const readBackups = yield* readFinished(setup, rest.success.snapshot)
        const history: History = {
          operations: recorder.operations,
          intrusions: recorder.intrusions,
          disturbances: recorder.disturbances,
          nodeActions: recorder.nodeActions,
          nodeTasks: recorder.nodeTasks,
          operationsDone: recorder.operationsDone,
          readBackups,
          keepSeconds: KEEP_SECONDS,
          subscribers: rest.success.subscribers,
          end: rest.success.snapshot
        }
        yield* found(
          invariants.flatMap(({ name, problems }) => problems(history).map((what) => `${name}: ${what}`)),
          history.end
        )
        const answered = history.operations.filter(({ status }) => status !== undefined).length
        yield* Effect.logInfo(
          `${history.operations.length} operations, ${answered} of them answered, ${history.disturbances.length} faults, ${history.end.tables.journal.length} journal entries, ${history.readBackups.length} backups read, ${history.operationsDone.size} tasks and ${history.end.tables.schedule_runs.length} runs, ${history.end.tables.kept_servers.length} servers kept (MUSTER_TEST_SEED=${seed})`
        )
        assert.isAbove(answered, 0)
      }).pipe(Effect.scoped),
    Duration.toMillis(Duration.seconds(seconds + 240))
  )
})
