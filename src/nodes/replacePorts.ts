/** The reservations of ports that replace those that other programs of a node have. */
import { Effect } from "effect"
import { withPorts } from "../domain/Allocation.ts"
import { Conflict } from "../domain/errors.ts"
import type { TakenPort } from "../domain/NodeMessages.ts"
import type { ServerRecord } from "../domain/Server.ts"
import type { FleetState } from "./fleet/Fleet.ts"
import type { Reservation } from "./fleet/FleetNode.ts"
import type { PortMappings } from "./fleet/PortAllocator.ts"

const noOtherPort = (node_id: string, ip: string) =>
  new Conflict({
    detail: `no other port of ${ip} on node ${node_id} is free`,
    hint: "Free ports of the address, or give the node more."
  })

/** Reserves a port for each taken one, on the same address, until the scope ends; returns the new allocations. */
export const replacePorts = Effect.fnUntraced(function* (
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

/** Returns the ports of `some` that are not in `others`. */
const without = (some: PortMappings, others: PortMappings): PortMappings =>
  Object.fromEntries(
    Object.entries(some)
      .map(([ip, ports]) => [ip, ports.filter((port) => others[ip]?.includes(port) !== true)] as const)
      .filter(([, ports]) => ports.length > 0)
  )

/**
 * Withholds the ports that a server loses on its node, because another program has them. Returns the end of that;
 * undefined: the server loses none.
 */
export const avoidLost = (fleet: FleetState, next: Reservation): (() => void) | undefined => {
  const before = fleet.holding(next.server_id)
  const node = fleet.get(next.node_id)
  if (node === undefined || before?.node_id !== next.node_id) return undefined
  const lost = without(before.mappings, next.mappings)
  return Object.keys(lost).length === 0 ? undefined : fleet.avoid(node, lost)
}
