/** A placement that is not made: how each node fits (spec 3.3). No I/O. */
import type { NodeId } from "../../domain/Id.ts"
import type { NodeFit } from "../../domain/NodeFit.ts"
import type { Misfit } from "./misfit.ts"
import type { Compare } from "./OrderedTree.ts"
import type { Candidate, Rank } from "./place.ts"

/** Nodes that a preview lists. */
const MOST_CANDIDATES = 100

/** The outcome of a placement that is not made. */
export interface PlacementPreview {
  /** The node that a placement would choose; undefined: no node fits. */
  readonly chosen: NodeId | undefined
  /** The chosen node, then the other nodes that fit, then the rest. */
  readonly candidates: ReadonlyArray<NodeFit>
  readonly warnings: ReadonlyArray<string>
}

interface Considered {
  readonly candidate: Candidate
  readonly misfits: ReadonlyArray<Misfit>
}

const fitOf = ({ candidate: { id, name, room, share }, misfits }: Considered): NodeFit => ({
  node_id: id,
  node_name: name,
  fits: misfits.length === 0,
  ...(misfits.length === 0 ? {} : { reason: misfits.map(({ reason }) => reason).join("; ") }),
  memory_free_bytes: Math.max(0, room.memory_bytes),
  disk_free_bytes: Math.max(0, room.disk_bytes),
  ports_free: room.ports,
  share
})

/** Returns the preview of a choice among some nodes, at most {@link MOST_CANDIDATES} of them. */
export const previewOf = (
  nodes: ReadonlyArray<Considered>,
  chosen: NodeId | undefined,
  compare: Compare<Rank>
): PlacementPreview => {
  const rank = ({ candidate, misfits }: Considered): number =>
    candidate.id === chosen ? 0 : misfits.length === 0 ? 1 : 2
  const sorted = nodes.toSorted((a, b) => rank(a) - rank(b) || compare(a.candidate, b.candidate))
  const unlisted = sorted.length - MOST_CANDIDATES
  return {
    chosen,
    candidates: sorted.slice(0, MOST_CANDIDATES).map(fitOf),
    warnings: unlisted > 0 ? [`${unlisted} more nodes are not listed`] : []
  }
}
