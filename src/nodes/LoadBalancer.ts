import { Context, Effect, Latch, Layer, type Option, Random, Result, type Scope } from "effect"
import type { Allocations } from "../domain/Allocation.ts"
import type { PlacementRule } from "../domain/Blueprint.ts"
import { type Conflict, type NotFound, Unavailable } from "../domain/errors.ts"
import type { NodeId } from "../domain/Id.ts"
import {
  committedCpuPercent,
  committedDiskBytes,
  committedMemoryBytes,
  type Limits
} from "../domain/Limits.ts"
import { notCallable, type RuntimeKind } from "../domain/Node.ts"
import type { TakenPort } from "../domain/NodeMessages.ts"
import type { ServerRecord } from "../domain/Server.ts"
import type { AvailableCapacity } from "../store/repos/CapacityRepo.ts"
import { Fleet } from "./fleet/Fleet.ts"
import type { FleetNode, Load, ReservationId } from "./fleet/FleetNode.ts"
import { type Misfit, misfits, shortages, summarize } from "./fleet/misfit.ts"
import { PlacementIndex } from "./fleet/PlacementIndex.ts"
import { type Candidate, type Need, orderOf, runs, type Strategy } from "./fleet/place.ts"
import { type PlacementPreview, previewOf } from "./fleet/preview.ts"
import { nodeNotFound } from "./nodeNotFound.ts"
import { avoidLost, replacePorts } from "./replacePorts.ts"

/** The requirements of a server on its node. */
export interface PlacementRequest {
  readonly server_id: ReservationId
  readonly blueprint_id: string
  /** The node that the caller names, drained or not. */
  readonly node_id?: NodeId
  readonly limits: Limits
  readonly ports: number
  readonly runtimes: ReadonlyArray<RuntimeKind>
  readonly placement: PlacementRule
  /** Ids of nodes that are excluded. */
  readonly except?: ReadonlyArray<NodeId>
  /** Whether the caller repeats a refused request, so that a refusal is not counted again. */
  readonly isRetry?: boolean
}

/** A record of a server, or that of its second reservation. */
export type Reserved = Omit<ServerRecord, "id"> & { readonly id: ReservationId }

/** Returns the placement request of an existing server. */
export const placementOf = ({ blueprint_id, definition, id }: ServerRecord): PlacementRequest => {
  const { limits, placement, ports, runtimes } = definition
  return { server_id: id, blueprint_id, limits, placement, ports, runtimes }
}

/** The node of a server; its capacity and ports are reserved from the moment this is returned. */
export interface Placement {
  readonly node_id: NodeId
  readonly allocations: Allocations
}

export interface LoadBalancerOptions {
  /** Default `spread`. */
  readonly strategy?: Strategy
  /** The capacity for placements, as a multiple of that of the node; default 1. */
  readonly memoryOvercommit?: number
  readonly diskOvercommit?: number
}

/** Time for which a placement waits for the first calls to nodes that have just registered. */
const FIRST_CALL = "3 seconds"

/** Time for which a port that a program of its node has is not given to another server. */
const AVOIDED = "10 minutes"

/** Refusals that are cached until a node changes, so that a full fleet is not searched for each request. */
const KEPT_REASONS = 100

const loadOf = (limits: Limits): Load => ({
  memory_bytes: committedMemoryBytes(limits),
  disk_bytes: committedDiskBytes(limits),
  cpu_millipercent: Math.round(committedCpuPercent(limits) * 1000)
})

const needOf = ({ limits, ports, runtimes, placement, blueprint_id, except }: PlacementRequest): Need => ({
  memory_bytes: committedMemoryBytes(limits),
  disk_bytes: committedDiskBytes(limits),
  ports: ports >= 1 ? Math.ceil(ports) : 1,
  runtimes,
  locations: placement.locations,
  ...(placement.anti_affinity ? { alone: blueprint_id } : {}),
  ...(except === undefined || except.length === 0 ? {} : { except })
})

/**
 * Chooses nodes and commits their capacity and ports at once (node-protocol, "Placement and ports").
 *
 * A named node is chosen even if it is drained, in another location or has a server of the blueprint; it must be
 * connected, offer a runtime and have capacity. If no node fits, a placement waits for the first calls to nodes that have
 * just registered.
 */
export class LoadBalancer extends Context.Service<
  LoadBalancer,
  {
    /**
     * Places a server; an earlier reservation of it is released first.
     *
     * @error NotFound    the named node is not known
     * @error Unavailable no node fits, or the named one is full, not connected or lacks the runtime
     */
    place(request: PlacementRequest): Effect.Effect<Placement, NotFound | Unavailable>
    /**
     * Returns what {@link place} would do now. Reserves and counts nothing.
     *
     * @error NotFound the named node is not known
     */
    preview(request: PlacementRequest): Effect.Effect<PlacementPreview, NotFound>
    /**
     * Returns the reason that the rows do not allow a placement: other replicas took the capacity, or the node changed.
     */
    whyNot(request: PlacementRequest, room: Option.Option<AvailableCapacity>): string | undefined
    /** Releases a reservation with a taken port: the next ports of the node are chosen from another range. */
    releaseAndAvoidPorts(server_id: ReservationId): Effect.Effect<void>
    /**
     * Reserves other ports in place of taken ones until the scope ends; returns the new allocations. By then, the record
     * of the server has them, or the caller gives up.
     *
     * @error Conflict no port of the address is free
     */
    replacePorts(
      record: ServerRecord,
      taken: ReadonlyArray<TakenPort>
    ): Effect.Effect<Allocations, Conflict, Scope.Scope>
    /** Releases the reservation of a server, if it has one. */
    release(server_id: ReservationId): Effect.Effect<void>
    /** Restores the reservations of records: at start, and of records of other replicas. */
    restore(records: ReadonlyArray<Reserved>): Effect.Effect<void>
    /** Placements since the start, by outcome; refused retries are not counted. */
    readonly placements: Effect.Effect<{ readonly placed: number; readonly refused: number }>
  }
>()("muster/nodes/LoadBalancer") {
  static readonly layer = (options: LoadBalancerOptions = {}) =>
    Layer.effect(
      LoadBalancer,
      Effect.gen(function* () {
        const { strategy = "spread", memoryOvercommit = 1, diskOvercommit = 1 } = options
        const fleet = yield* Fleet
        const index = new PlacementIndex(strategy)
        const reasons = new Map<string, string>()
        let placed = 0
        let refused = 0

        const candidateOf = (node: FleetNode): Candidate | undefined => {
          const { record, committed } = node
          if (record === undefined) return undefined
          const { memory_bytes, disk_bytes } = record.capacity
          return {
            id: node.id,
            name: record.name,
            location: record.location,
            runtimes: record.runtimes,
            share: memory_bytes > 0 ? committed.memory_bytes / memory_bytes : 1,
            servers: node.servers,
            room: {
              memory_bytes: Math.floor(memory_bytes * memoryOvercommit) - committed.memory_bytes,
              disk_bytes: Math.floor(disk_bytes * diskOvercommit) - committed.disk_bytes,
              ports: node.ports.mostOnOneAddress
            },
            blueprints: node.blueprints
          }
        }

        /** Nodes that are being called for the first time; open while there are none. */
        const uncalled = new Set<NodeId>()
        const allCalled = Latch.makeUnsafe(true)

        yield* Effect.acquireRelease(
          Effect.sync(() =>
            fleet.watch((node) => {
              reasons.clear()
              const candidate = node.usable && node.record?.drained === false ? candidateOf(node) : undefined
              if (candidate === undefined) index.delete(node.id)
              else index.set(candidate)
              if (node.uncalled) uncalled.add(node.id)
              else uncalled.delete(node.id)
              // Waiting placements continue at once: the node is available.
              if (uncalled.size === 0) allCalled.openUnsafe()
              else allCalled.closeUnsafe()
            })
          ),
          (stop) => Effect.sync(stop)
        )

        /** @param isNamed whether the caller names the node: it may then be drained */
        const misfitsOf = (node: FleetNode, need: Need, isNamed = false): ReadonlyArray<Misfit> => {
          const candidate = candidateOf(node)
          if (!node.connected || candidate === undefined) return [{ kind: "away", reason: "not connected" }]
          if (!node.usable) return [{ kind: "unreachable", reason: "unreachable" }]
          const drained: ReadonlyArray<Misfit> =
            node.record?.drained === true && !isNamed ? [{ kind: "drained", reason: "drained" }] : []
          return [...drained, ...misfits(candidate, need)]
        }
        const listed = () => [...fleet.nodes].filter((node) => node.listed !== undefined)
        const whyNone = (need: Need): string => {
          const key = JSON.stringify(need)
          const why =
            reasons.get(key) ??
            summarize(
              listed()
                .map((node) => ({
                  name: node.record?.name ?? node.id,
                  misfit: misfitsOf(node, need)[0] ?? { kind: "changing" as const, reason: "changing" }
                }))
                .toSorted((one, other) => (one.name < other.name ? -1 : 1)),
              need
            )
          if (reasons.size >= KEPT_REASONS) reasons.clear()
          reasons.set(key, why)
          return why
        }

        const named = (id: NodeId, need: Need): Result.Result<FleetNode, NotFound | Unavailable> => {
          const node = fleet.get(id)
          const candidate = node?.listed === undefined ? undefined : candidateOf(node)
          if (node === undefined || candidate === undefined) return Result.fail(nodeNotFound(fleet, id))
          if (!node.connected) return Result.fail(Unavailable.nodeNotConnected(id))
          if (node.unreachable !== undefined) {
            return Result.fail(Unavailable.nodeNotConnected(id, notCallable(node.unreachable)))
          }
          if (!runs(candidate, need)) {
            return Result.fail(
              Unavailable.nodeCannotRun(id, candidate.runtimes, need.runtimes, "name another node or none")
            )
          }
          const [short] = shortages(candidate.room, need)
          if (short === undefined) return Result.succeed(node)
          return Result.fail(Unavailable.nodeFull(id, `It is without ${short.needed}: it has ${short.free}`))
        }

        const anywhere = (need: Need): Result.Result<FleetNode, Unavailable> => {
          const chosen = index.choose(need)
          const node = chosen === undefined ? undefined : fleet.get(chosen.id)
          return node === undefined ? Result.fail(Unavailable.noNodes(whyNone(need))) : Result.succeed(node)
        }

        const place = (request: PlacementRequest): Result.Result<Placement, NotFound | Unavailable> => {
          const { server_id, blueprint_id, node_id, limits } = request
          fleet.release(server_id)
          const need = needOf(request)
          const chosen: Result.Result<FleetNode, NotFound | Unavailable> =
            node_id === undefined ? anywhere(need) : named(node_id, need)
          return Result.flatMap(chosen, (node) => {
            const server = { server_id, blueprint_id, load: loadOf(limits) }
            const allocations = fleet.reserve(node, server, need.ports)
            return allocations === undefined
              ? Result.fail(Unavailable.nodeFull(node.id, "Its ports are taken"))
              : Result.succeed({ node_id: node.id, allocations })
          })
        }

        const preview = (request: PlacementRequest): Result.Result<PlacementPreview, NotFound> => {
          const need = needOf(request)
          const { node_id } = request
          if (node_id === undefined) {
            const chosen = index.preview(need)?.id
            const nodes = listed().flatMap((node) => {
              const candidate = candidateOf(node)
              return candidate === undefined ? [] : [{ candidate, misfits: misfitsOf(node, need) }]
            })
            const previewed = previewOf(nodes, chosen, orderOf(strategy))
            return Result.succeed(
              chosen === undefined
                ? { ...previewed, warnings: [`no node fits: ${whyNone(need)}`, ...previewed.warnings] }
                : previewed
            )
          }
          const node = fleet.get(node_id)
          const candidate = node?.listed === undefined ? undefined : candidateOf(node)
          if (node === undefined || candidate === undefined) return Result.fail(nodeNotFound(fleet, node_id))
          const { alone: _, ...own } = { ...need, locations: [] }
          const misfits = misfitsOf(node, own, true)
          const chosen = misfits.length === 0 ? node_id : undefined
          const previewed = previewOf([{ candidate, misfits }], chosen, orderOf(strategy))
          return Result.succeed(
            node.record?.drained === true
              ? { ...previewed, warnings: [`the node is drained: ${node_id}`] }
              : previewed
          )
        }

        const scope = yield* Effect.scope
        /** Ends the avoidance of ports after a while. */
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

        // Runs without a pause: simultaneous requests spread as consecutive ones do.
        const placeNow = (request: PlacementRequest) =>
          Effect.suspend(() => Effect.fromResult(place(request)))
        const placeSoon = (request: PlacementRequest) =>
          Effect.catchTag(placeNow(request), "Unavailable", (refusal) => {
            const { node_id } = request
            const mayHelp = node_id === undefined ? uncalled.size > 0 : uncalled.has(node_id)
            // Nothing is reserved yet, so the caller may be interrupted.
            const called = Effect.interruptible(Effect.timeoutOption(allCalled.await, FIRST_CALL))
            return mayHelp ? Effect.andThen(called, placeNow(request)) : Effect.fail(refusal)
          })

        const whyNot = (
          request: PlacementRequest,
          found: Option.Option<AvailableCapacity>
        ): string | undefined => {
          if (found._tag === "None") return "the node is gone"
          const { capacity, connected, disk_bytes, drained, has_blueprint, memory_bytes } = found.value
          const { alone, ...need } = needOf(request)
          if (!connected) return "the node is not connected"
          if (request.node_id === undefined && drained) return "the node is drained"
          if (request.node_id === undefined && alone !== undefined && has_blueprint)
            return `the node has a server of ${alone}`
          const room = {
            memory_bytes: Math.floor(capacity.memory_bytes * memoryOvercommit) - memory_bytes,
            disk_bytes: Math.floor(capacity.disk_bytes * diskOvercommit) - disk_bytes,
            // The allocator decides which ports are free.
            ports: need.ports
          }
          const [short] = shortages(room, need)
          return short === undefined ? undefined : `the node is without ${short.needed}`
        }

        return LoadBalancer.of({
          place: Effect.fn("LoadBalancer.place")((request) =>
            placeSoon(request).pipe(
              Effect.tap(() =>
                Effect.sync(() => {
                  placed += 1
                })
              ),
              Effect.tapError(() =>
                Effect.sync(() => {
                  if (request.isRetry !== true) refused += 1
                })
              )
            )
          ),
          preview: Effect.fn("LoadBalancer.preview")((request) =>
            Effect.suspend(() => Effect.fromResult(preview(request)))
          ),
          whyNot,
          releaseAndAvoidPorts: (server_id) =>
            Effect.map(Random.next, (at) => {
              const node_id = fleet.holding(server_id)?.node_id
              fleet.release(server_id)
              if (node_id !== undefined) fleet.get(node_id)?.ports.scatter(at)
            }),
          replacePorts: (record, taken) => replacePorts(fleet, record, taken),
          release: (server_id) => Effect.sync(() => fleet.release(server_id)),
          restore: (records) =>
            Effect.suspend(() => {
              const avoided: Array<() => void> = []
              for (const { id, node_id, blueprint_id, definition, allocations } of records) {
                const reservation = { server_id: id, node_id, blueprint_id, load: loadOf(definition.limits) }
                const allow = avoidLost(fleet, { ...reservation, mappings: allocations.mappings })
                if (allow !== undefined) avoided.push(allow)
                fleet.hold({ ...reservation, mappings: allocations.mappings })
              }
              return avoided.length === 0 ? Effect.void : allowLater(avoided)
            }),
          placements: Effect.sync(() => ({ placed, refused }))
        })
      })
    )
}
