import type { NodeId, ServerId } from "../../domain/Id.ts"
import { byTurn } from "../../domain/Run.ts"
import { isQueued, type ListedServer } from "./summary.ts"

const none: ReadonlySet<ServerId> = new Set()

/** The servers that wait for their nodes to start them. */
export class WaitingServers {
  readonly #byNode = new Map<NodeId, Map<ServerId, ListedServer>>()
  /** By node: the place of each server, until the next change. */
  readonly #places = new Map<NodeId, ReadonlyMap<ServerId, number>>()

  get count(): number {
    return [...this.#byNode.values()].reduce((sum, { size }) => sum + size, 0)
  }

  /** Takes over a record before and after its change; returns the servers whose place may be another. */
  change(before: ListedServer | undefined, after: ListedServer | undefined): ReadonlySet<ServerId> {
    const was = before !== undefined && isQueued(before)
    const is = after !== undefined && isQueued(after)
    if (!was && !is) return none
    const isMoved =
      was !== is || before?.node_id !== after?.node_id || before?.definition !== after?.definition
    const changed = new Set<ServerId>()
    for (const [record, isIn] of [
      [before, false],
      [after, is]
    ] as const) {
      if (record === undefined) continue
      const { id, node_id } = record
      const servers = this.#byNode.get(node_id) ?? new Map<ServerId, ListedServer>()
      if (isIn) servers.set(id, record)
      else servers.delete(id)
      if (servers.size === 0) this.#byNode.delete(node_id)
      else this.#byNode.set(node_id, servers)
      if (!isMoved) continue
      this.#places.delete(node_id)
      for (const other of servers.keys()) changed.add(other)
    }
    return changed
  }

  readonly placeOf = ({ id, node_id }: ListedServer): number => {
    let places = this.#places.get(node_id)
    if (places === undefined) {
      const queue = [...(this.#byNode.get(node_id)?.values() ?? [])].sort(byTurn)
      places = new Map(queue.map((record, at) => [record.id, at + 1]))
      this.#places.set(node_id, places)
    }
    return places.get(id) ?? 1
  }
}
