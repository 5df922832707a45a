import { Context, Effect, Latch, Layer, Random, Result } from "effect"
import { type Allocations, withPorts } from "../../contract/domain/Allocation.ts"
import { Conflict, type NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { TakenPort } from "../../contract/domain/NodeMessages.ts"
import { reservedLimits, type ServerRecord } from "../../contract/domain/Server.ts"
import { Fleet, type FleetState, watchFleet } from "./fleet/Fleet.ts"
import type { Reservation, ReservationId } from "./fleet/FleetNode.ts"
import type { PortMappings } from "./fleet/PortAllocator.ts"
import {
  type LoadBalancerOptions,
  loadOf,
  makePlacementChoice,
  needOf,
  type PlacementRequest,
  type Reserved
} from "./placementChoice.ts"

const noOtherPort = (node_id: string, ip: string) =>
  new Conflict({
    detail: `no other port of ${ip} on node ${node_id} is free`,
    hint: "Free ports of the address, or give the node more."
  })

/** Reserves a port on the same address for each taken one until the scope ends. Returns the new allocations. */
const replacePorts = Effect.fnUntraced(function* (
  fleet: FleetState,
  { allocations, node_id }: Pick<ServerRecord, "allocations" | "node_id">,
  taken: ReadonlyArray<TakenPort>
) {
  let replaced = allocations
  for (const [ip, ports] of Map.groupBy(taken, (one) => one.ip)) {
    const { ports: others } = yield* Effect.acquireRelease(
      Effect.suspend(() => {
        const node = fleet.get(node_id)
        const more = node === undefined ? undefined : fleet.reserveMore(node, ip, ports.length)
        return more === undefined ? Effect.fail(noOtherPort(node_id, ip)) : Effect.succeed(more)
      }),
      ({ release }) => Effect.sync(release)
    )
    const other = ports.flatMap(({ port }, at) => {
      const found = others[at]
      return found === undefined ? [] : [[port, found] as const]
    })
    replaced = withPorts(replaced, ip, new Map(other))
  }
  return replaced
})

const without = (some: PortMappings, others: PortMappings): PortMappings =>
  Object.fromEntries(
    Object.entries(some)
      .map(([ip, ports]) => [ip, ports.filter((port) => others[ip]?.includes(port) !== true)] as const)
      .filter(([, ports]) => ports.length > 0)
  )

/** Withholds ports that a server loses on its node to another program. Returns the end of that, if it loses any. */
const avoidLost = (fleet: FleetState, next: Reservation): (() => void) | undefined => {
  const before = fleet.reservation(next.server_id)
  const node = fleet.get(next.node_id)
  if (node === undefined || before?.node_id !== next.node_id) return undefined
  const lost = without(before.mappings, next.mappings)
  return Object.keys(lost).length === 0 ? undefined : fleet.avoid(node, lost)
}

/** The node of a server, whose capacity and ports are reserved already. */
export interface Placement {
  readonly node_id: NodeId
  readonly allocations: Allocations
}

/** Pause between attempts of a waiting placement, unless all nodes are called before, and the number of attempts. */
const AGAIN = "500 millis"
const ATTEMPTS = 10

/** Time for which servers do not get a port that a program of its node has. */
const AVOIDED = "10 minutes"

const placingOn =
  (fleet: FleetState, choice: ReturnType<typeof makePlacementChoice>) =>
  (request: PlacementRequest): Result.Result<Placement, NotFound | Unavailable> => {
    const { server_id, blueprint_id, like, node_id, limits } = request
    fleet.release(server_id)
    const need = needOf(request)
    return Result.flatMap(choice.choose(node_id, need), (node) => {
      const server = { server_id, blueprint_id, load: loadOf(limits) }
      const allocations = fleet.reserve(node, server, need.ports, like)
      return allocations === undefined
        ? Result.fail(Unavailable.nodeFull(node.id, "Its ports are taken"))
        : Result.succeed({ node_id: node.id, allocations })
    })
  }

/**
 * Chooses nodes and reserves their capacity and ports in one step (spec 2.4). A named node need only be connected and
 * have a runtime and capacity. Without a fit, a placement waits up to 5 s for first calls and expected nodes.
 */
export class LoadBalancer extends Context.Service<LoadBalancer>()("muster/nodes/LoadBalancer", {
  make: Effect.fnUntraced(function* (options: LoadBalancerOptions = {}) {
    const fleet = yield* Fleet
    const choice = makePlacementChoice(fleet, options)
    const placeNow = placingOn(fleet, choice)
    let placed = 0
    let refused = 0

    /** Nodes that are expected or being called for the first time. The latch is open while there are none. */
    const uncalled = new Set<NodeId>()
    const allCalled = Latch.makeUnsafe(true)
    yield* watchFleet(fleet, (node) => {
      if (node.pending) uncalled.add(node.id)
      else uncalled.delete(node.id)
      if (uncalled.size === 0) allCalled.openUnsafe()
      else allCalled.closeUnsafe()
    })
    /** An attempt runs without a pause, so that simultaneous requests spread as consecutive ones do. */
    const placeWithin = (
      request: PlacementRequest,
      attempts: number
    ): Effect.Effect<Placement, NotFound | Unavailable> =>
      Effect.suspend(() => {
        const result = placeNow(request)
        const { node_id } = request
        const mayHelp = attempts > 0 && (node_id === undefined ? uncalled.size > 0 : uncalled.has(node_id))
        if (Result.isFailure(result) && result.failure._tag === "Unavailable" && mayHelp) {
          // Nothing is reserved yet, so the caller may be interrupted.
          const called = Effect.interruptible(Effect.timeoutOption(allCalled.await, AGAIN))
          return Effect.andThen(called, placeWithin(request, attempts - 1))
        }
        if (Result.isSuccess(result)) placed += 1
        else if (request.isRetry !== true) refused += 1
        return Effect.fromResult(result)
      })

    const scope = yield* Effect.scope
    const allowLater = (avoided: ReadonlyArray<() => void>) =>
      Effect.sleep(AVOIDED).pipe(
        Effect.andThen(
          Effect.sync(() => {
            for (const allow of avoided) allow()
          })
        ),
        Effect.forkIn(scope),
        Effect.asVoid
      )

    /** Takes the next ports of all nodes from another range: another replica allocates the current ones of each. */
    const avoidPorts = Effect.map(Random.next, (at) => {
      for (const node of fleet.nodes) node.ports.scatter(at)
    })

    return {
      /**
       * Places a server. An earlier reservation of it is released first.
       * @error NotFound    the named node is not known
       * @error Unavailable no node fits, or the named one is full, not connected or lacks the runtime
       */
      place: (request: PlacementRequest) => placeWithin(request, ATTEMPTS),
      /** Returns what {@link place} would do now. Reserves nothing. @error NotFound the named node is not known */
      preview: Effect.fn("LoadBalancer.preview")((request: PlacementRequest) =>
        Effect.suspend(() => Effect.fromResult(choice.preview(request)))
      ),
      /** Returns why the rows refuse a placement: other replicas took the capacity, or the node changed. */
      whyNot: choice.whyNot,
      avoidPorts,
      /** Returns the disk of a node that no server has reserved, in bytes; unlimited if the node is unknown. */
      freeDisk: (id: NodeId) => Effect.sync(() => choice.freeDisk(id)),
      /** Releases a reservation with a taken port, and avoids the next ones. */
      releaseAndAvoidPorts: (server_id: ReservationId) =>
        Effect.andThen(
          Effect.sync(() => fleet.release(server_id)),
          avoidPorts
        ),
      /**
       * Reserves other ports for taken ones until the scope ends: the record has them, or the caller gives up.
       * @error Conflict no port of the address is free
       */
      replacePorts: (record: ServerRecord, taken: ReadonlyArray<TakenPort>) =>
        replacePorts(fleet, record, taken),
      release: (server_id: ReservationId) => Effect.sync(() => fleet.release(server_id)),
      /** Restores the reservations of records at start, and of records of other replicas. */
      restore: (records: ReadonlyArray<Reserved>) =>
        Effect.suspend(() => {
          const reservations = records.map((record) => ({
            server_id: record.id,
            node_id: record.node_id,
            blueprint_id: record.blueprint_id,
            load: loadOf(reservedLimits(record)),
            mappings: record.allocations.mappings
          }))
          const avoided = reservations.flatMap((reservation) => avoidLost(fleet, reservation) ?? [])
          fleet.hold(reservations)
          return avoided.length === 0 ? Effect.void : allowLater(avoided)
        }),
      /** Returns {@link place} for a copy of the fleet with a drained node, without a wait for calls. */
      rehearse: (drained: NodeId) =>
        Effect.sync(() => {
          const copy = fleet.copy()
          const record = copy.get(drained)?.record
          if (record !== undefined) copy.put({ ...record, drained: true })
          return placingOn(copy, makePlacementChoice(copy, options))
        }),
      /** Placements since the start, by outcome; refused retries are not counted. */
      placements: Effect.sync(() => ({ placed, refused }))
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof LoadBalancer.make>) =>
    Layer.effect(LoadBalancer, LoadBalancer.make(...options))
}
