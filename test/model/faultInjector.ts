/** Injects and heals the planned faults. */
import { Effect, Schedule } from "effect"
import { eventually } from "../support/eventually.ts"
import { type Fault, FaultFailed, type TcpProxy } from "../support/faults/index.ts"
import { adminKey, requestTo } from "../support/Service.ts"
import type { Disturbance } from "./History.ts"
import type { Recorder } from "./Recorder.ts"
import { type PlannedFault, targetName, targetOf } from "./schedule.ts"
import { type ModelNode, REPLICA_WITH_CLOCK, type Replica, type Setup } from "./setup.ts"

const DELAY_MILLIS = 150
/** Error of a clock: more than any timeout of a replica, less than the time for which responses are stored. */
const CLOCK_MILLIS = 20 * 60_000
/** Pause between two attempts to heal: a replica does not start while the database is away. */
const AGAIN = Schedule.spaced("200 millis")
/** Maximum duration of a regular exit. */
const END_WITHIN = "40 seconds"

/** A planned fault and its target. */
interface Breakable {
  readonly fault: Fault
  readonly disturbance: Pick<Disturbance, "what" | "target">
}

const isReady = ({ url }: Replica) =>
  eventually(
    Effect.option(requestTo(url, adminKey)("GET", "/readyz").pipe(Effect.timeout("3 seconds"))),
    (answer) => answer._tag === "Some" && answer.value.status === 200,
    "90 seconds"
  ).pipe(
    Effect.mapError(({ message }) => new FaultFailed({ message: `${url} does not get ready: ${message}` }))
  )

/** SIGTERM; asserts that the replica exits by itself with status 0. */
const terminated = (replica: Replica): Fault => ({
  name: `replica ${replica.index} is terminated`,
  inject: replica.terminate.pipe(
    Effect.timeoutOrElse({
      duration: END_WITHIN,
      orElse: () => Effect.fail(new FaultFailed({ message: `replica ${replica.index} does not end` }))
    }),
    Effect.flatMap(({ exitCode, signalCode }) =>
      exitCode === 0
        ? Effect.void
        : new FaultFailed({ message: `replica ${replica.index} ended with ${exitCode ?? signalCode}` })
    )
  ),
  heal: replica.runner.killed.heal
})

const untilReady = (fault: Fault, replica: Replica, recorder: Recorder): Fault => ({
  ...fault,
  heal: fault.heal.pipe(
    Effect.tapError(({ message }) => Effect.sync(() => recorder.line({ replica: replica.index, message }))),
    Effect.retry(AGAIN),
    Effect.andThen(isReady(replica))
  )
})

const replicaFault = (kind: string, replica: Replica): Fault => {
  if (kind === "replica-frozen") return replica.runner.frozen
  return kind === "replica-killed" ? replica.runner.killed : terminated(replica)
}

const lineFault = (kind: string, line: TcpProxy): Fault => {
  if (kind === "connections-dropped") return line.dropped
  return kind === "connections-swallowed" ? line.swallowed : line.delayed(DELAY_MILLIS)
}

const nodeFault = (kind: string, node: ModelNode): Fault => {
  const there = (is: boolean) => Effect.sync(() => node.setThere(is))
  const restart = Effect.andThen(
    node.restart.pipe(Effect.mapError(({ message }) => new FaultFailed({ message }))),
    there(true)
  )
  switch (kind) {
    case "node-cut":
      return {
        name: `${node.id} is cut off`,
        inject: Effect.andThen(there(false), node.cut),
        heal: Effect.andThen(node.heal, there(true))
      }
    case "node-killed":
      return {
        name: `${node.id} is killed`,
        inject: Effect.andThen(there(false), node.kill),
        heal: restart
      }
    case "node-wiped":
      return {
        name: `${node.id} loses its disk`,
        inject: Effect.andThen(Effect.andThen(there(false), node.kill), node.wipe),
        heal: restart
      }
    default:
      return {
        name: `messages of ${node.id} go wrong`,
        inject: node.beginMessageFaults,
        heal: node.endMessageFaults
      }
  }
}

export const makeFaultInjector = (setup: Setup, recorder: Recorder) => {
  const breakable = ({ kind, target }: PlannedFault): Breakable | undefined => {
    const replica = setup.replicas[target]
    const node = setup.nodes[target]
    const what = targetOf(kind)
    if (what === "database") {
      const { frozen, killed, stopped } = setup.database
      const fault = kind === "database-killed" ? killed : kind === "database-stopped" ? stopped : frozen
      return { fault, disturbance: { what: "database", target: undefined } }
    }
    if (what === "clock") {
      const { clock } = setup.replicas[REPLICA_WITH_CLOCK] ?? {}
      const millis = kind === "clock-ahead" ? CLOCK_MILLIS : -CLOCK_MILLIS
      return (
        clock && { fault: clock.jumped(millis), disturbance: { what: "clock", target: REPLICA_WITH_CLOCK } }
      )
    }
    if (what === "node") {
      return node && { fault: nodeFault(kind, node), disturbance: { what: "node", target: node.id } }
    }
    if (replica === undefined) return undefined
    if (what === "replica") {
      const fault = untilReady(replicaFault(kind, replica), replica, recorder)
      return { fault, disturbance: { what: "replica", target } }
    }
    const fault = lineFault(kind, replica.line)
    const name = `replica ${target}'s ${fault.name}`
    return { fault: { ...fault, name }, disturbance: { what: "database-of-replica", target } }
  }

  const carryOut = Effect.fnUntraced(function* (planned: PlannedFault) {
    const broken = breakable(planned)
    if (broken === undefined) {
      return yield* new FaultFailed({ message: `nothing to break: ${JSON.stringify(planned)}` })
    }
    const { disturbance, fault } = broken
    const healed = recorder.disturbed({ name: fault.name, ...disturbance })
    if (planned.kind === "node-wiped") {
      recorder.nodeAction({ node: String(disturbance.target), server: undefined })
    }
    yield* Effect.acquireUseRelease(
      fault.inject,
      () => Effect.sleep(planned.lasts),
      () => fault.heal
    )
    healed()
  })

  /** Carries out a plan; on return every fault is healed. */
  return Effect.fnUntraced(function* (plan: ReadonlyArray<PlannedFault>) {
    const busy = new Set<string>()
    /** A fault that is not yet healed is not injected again. */
    const inTurn = (planned: PlannedFault) =>
      Effect.suspend(() => {
        const target = targetName(planned)
        if (busy.has(target)) return Effect.sync(() => recorder.line({ skipped: planned }))
        busy.add(target)
        return Effect.ensuring(
          carryOut(planned),
          Effect.sync(() => busy.delete(target))
        )
      })
    yield* Effect.forEach(plan, (planned) => Effect.delay(inTurn(planned), planned.at), {
      concurrency: "unbounded",
      discard: true
    })
  })
}
