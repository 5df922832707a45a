import type { ServerRecord } from "../../domain/Server.ts"
import type { PlacementRequest } from "../../nodes/LoadBalancer.ts"

/** What a server that exists needs of a node. */
export const placementOf = ({ blueprint_id, definition, id }: ServerRecord): PlacementRequest => {
  const { limits, placement, ports, runtimes } = definition
  return { server_id: id, blueprint_id, limits, placement, ports, runtimes }
}
