import { Effect, Layer, PubSub, Result, Stream } from "effect"
import { NotFound, Unavailable } from "../../../../src/contract/domain/errors.ts"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { RegistrationRequired } from "../../../../src/contract/nodeApi/ControlPlaneApi.ts"
import type { ReservationId } from "../../../../src/controlPlane/nodes/fleet/FleetNode.ts"
import { LoadBalancer, type Placement } from "../../../../src/controlPlane/nodes/LoadBalancer.ts"
import { type NodeChange, NodeRegistry } from "../../../../src/controlPlane/nodes/NodeRegistry.ts"
import type { PlacementRequest, Reserved } from "../../../../src/controlPlane/nodes/placementChoice.ts"
import { allocations, host, systemInfo } from "../../../support/samples.ts"

interface FakeNode {
  name: string
  boot_id: string
  connected: boolean
  readonly ports: ReadonlyArray<number>
}

/** Nodes and their ports in memory, in place of the registry and the load balancer of one control plane. */
export class FakeNodes {
  readonly nodes = new Map<NodeId, FakeNode>()
  readonly drained = new Set<NodeId>()
  /** Ports by server, as in the load balancer. */
  readonly held = new Map<
    ReservationId,
    { readonly node_id: NodeId; readonly ports: ReadonlyArray<number> }
  >()
  readonly #changes = Effect.runSync(PubSub.unbounded<NodeChange>())

  constructor(...nodes: ReadonlyArray<{ readonly id: string; readonly ports: number }>) {
    for (const { id, ports } of nodes) {
      const numbers = Array.from({ length: ports }, (_, index) => 25565 + index)
      this.nodes.set(NodeId.make(id), { name: id, boot_id: "", connected: false, ports: numbers })
    }
  }

  /** The node is silent, lost, or connected again without a registration. */
  publish(id: string, kind: NodeChange["kind"]) {
    return Effect.suspend(() => {
      const node_id = NodeId.make(id)
      const node = this.nodes.get(node_id)
      if (node !== undefined) node.connected = kind === "connected"
      return this.announce(node_id, kind)
    })
  }

  /** Publishes the change only, whatever the state of the node. */
  announce(id: string, kind: NodeChange["kind"]) {
    return PubSub.publish(this.#changes, { node_id: NodeId.make(id), kind })
  }

  readonly registry = Layer.sync(NodeRegistry, () => {
    const of = (id: NodeId) => {
      const node = this.nodes.get(id)
      return node === undefined ? Effect.fail(NotFound.node(id)) : Effect.succeed(node)
    }
    const detail = (id: NodeId) =>
      Effect.map(of(id), (node) => ({
        id,
        name: node.name,
        location: "",
        url: "",
        drained: this.drained.has(id),
        connected: node.connected,
        last_seen_at: null,
        version: systemInfo.version,
        capacity: { memory_bytes: 0, cpu_threads: 0, disk_bytes: 0 },
        usage: null,
        committed: { memory_bytes: 0, cpu_threads: 0, disk_bytes: 0 },
        ports_free: 0,
        servers: 0
      }))
    const checkBoot = (id: NodeId, boot_id = this.nodes.get(id)?.boot_id ?? "") =>
      this.nodes.get(id)?.boot_id === boot_id
        ? Effect.succeed(boot_id)
        : Effect.fail(new RegistrationRequired({ node_id: id }))
    return NodeRegistry.of({
      list: Effect.succeed([]),
      details: Effect.succeed([]),
      get: detail,
      system: (id) => Effect.as(of(id), host),
      nameOf: (id) => this.nodes.get(id)?.name ?? id,
      isConnected: (id) => this.nodes.get(id)?.connected ?? false,
      setUnreachable: () => Effect.succeed(false),
      check: () => Effect.void,
      register: (registration) =>
        Effect.suspend(() => {
          const known = this.nodes.get(registration.id)
          this.nodes.set(registration.id, {
            name: registration.name,
            boot_id: registration.boot_id,
            connected: true,
            ports: known?.ports ?? []
          })
          return Effect.as(this.publish(registration.id, "connected"), { token: "token" })
        }),
      heartbeat: (id, heartbeat) => Effect.asVoid(checkBoot(id, heartbeat.boot_id)),
      checkBoot,
      disconnect: (id, boot_id) => Effect.asVoid(checkBoot(id, boot_id)),
      revoke: () => Effect.void,
      refresh: () => Effect.void,
      setDrained: detail,
      remove: (id) => Effect.sync(() => void this.nodes.delete(id)),
      changes: Stream.fromPubSub(this.#changes)
    })
  })

  readonly balancer = Layer.sync(LoadBalancer, () => {
    this.held.clear()
    return LoadBalancer.of({
      place: (request) => Effect.suspend(() => Effect.fromResult(this.#place(request, this.held))),
      freeDisk: () => Effect.succeed(Number.POSITIVE_INFINITY),
      rehearse: () =>
        Effect.sync(() => {
          const held = new Map(this.held)
          return (request) => this.#place(request, held)
        }),
      preview: () => Effect.succeed({ chosen: undefined, candidates: [], warnings: [] }),
      placements: Effect.succeed({ placed: 0, refused: 0 }),
      whyNot: () => undefined,
      avoidPorts: Effect.void,
      releaseAndAvoidPorts: (id) => Effect.sync(() => void this.held.delete(id)),
      replacePorts: (record) => Effect.succeed(record.allocations),
      release: (id) => Effect.sync(() => void this.held.delete(id)),
      restore: (records) =>
        Effect.sync(() => {
          for (const record of records) this.#hold(record)
        })
    })
  })

  #hold(record: Reserved) {
    const ports = Object.values(record.allocations.mappings).flat()
    this.held.set(record.id, { node_id: record.node_id, ports })
  }

  #place(request: PlacementRequest, all: typeof this.held): Result.Result<Placement, NotFound | Unavailable> {
    if (request.node_id !== undefined && !this.nodes.has(request.node_id)) {
      return Result.fail(NotFound.node(request.node_id))
    }
    for (const [node_id, node] of this.nodes) {
      if (node_id === request.from || request.except?.includes(node_id) === true) continue
      if (request.node_id === undefined && this.drained.has(node_id)) continue
      if (!node.connected || (request.node_id !== undefined && request.node_id !== node_id)) continue
      const taken = new Set(
        [...all.values()].filter((held) => held.node_id === node_id).flatMap((held) => held.ports)
      )
      const ports = node.ports.filter((port) => !taken.has(port)).slice(0, request.ports)
      if (ports.length < request.ports) continue
      all.set(request.server_id, { node_id, ports })
      return Result.succeed({ node_id, allocations: allocations(...ports) })
    }
    return Result.fail(Unavailable.noNodes("no node has free ports"))
  }
}
