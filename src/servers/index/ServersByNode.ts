import type { NodeId, ServerId } from "../../domain/Id.ts"
import type { ServerRecord } from "../../domain/Server.ts"

type OnNode = Pick<ServerRecord, "id" | "node_id">

/** The ids of the servers of each node, and the display name of the node as the summaries show it. */
export class ServersByNode {
  readonly #nodes = new Map<NodeId, { name: string; readonly ids: Set<ServerId> }>()
  readonly #nameOf: (node_id: NodeId) => string

  /** @param nameOf present display name of a node */
  constructor(nameOf: (node_id: NodeId) => string) {
    this.#nameOf = nameOf
  }

  add({ id, node_id }: OnNode): void {
    const node = this.#nodes.get(node_id)
    if (node === undefined) this.#nodes.set(node_id, { name: this.#nameOf(node_id), ids: new Set([id]) })
    else node.ids.add(id)
  }

  remove({ id, node_id }: OnNode): void {
    const node = this.#nodes.get(node_id)
    node?.ids.delete(id)
    if (node?.ids.size === 0) this.#nodes.delete(node_id)
  }

  on(node_id: NodeId): ReadonlySet<ServerId> {
    return this.#nodes.get(node_id)?.ids ?? none
  }

  nameOf(node_id: NodeId): string {
    return this.#nodes.get(node_id)?.name ?? this.#nameOf(node_id)
  }

  /** Takes over the present display name of a node; returns the servers that showed another one. */
  rename(node_id: NodeId): ReadonlySet<ServerId> {
    const node = this.#nodes.get(node_id)
    const name = this.#nameOf(node_id)
    if (node === undefined || node.name === name) return none
    node.name = name
    return node.ids
  }
}

const none: ReadonlySet<ServerId> = new Set()
