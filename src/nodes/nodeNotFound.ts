import { NotFound } from "../domain/errors.ts"
import type { NodeId } from "../domain/Id.ts"
import type { FleetState } from "./fleet/Fleet.ts"

/** Ids that are named at most. */
const MOST = 10

/** 404 of a node; where its name was given in place of its id, with the id. */
export const nodeNotFound = (fleet: FleetState, id: NodeId): NotFound => {
  const plain = NotFound.node(id)
  const ids = fleet.list.filter((node) => node.name === id).map((node) => node.id)
  if (ids.length === 0) return plain
  const hint =
    ids.length === 1
      ? `That is the name of a node: its id is ${ids[0]}.`
      : `That is the name of ${ids.length} nodes: their ids are ${ids.slice(0, MOST).join(", ")}.`
  return new NotFound({ detail: plain.detail, hint })
}
