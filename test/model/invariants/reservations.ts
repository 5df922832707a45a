import { committedMemoryBytes } from "../../../src/contract/domain/Limits.ts"
import { reservedLimits } from "../../../src/contract/domain/Server.ts"
import type { Invariant } from "../History.ts"
import { portsOf, type Tables } from "../Snapshot.ts"

type Row = Tables["servers"][number]

const memoryOf = ({ definition, redefinition }: Row) =>
  committedMemoryBytes(reservedLimits({ definition, ...(redefinition === null ? {} : { redefinition }) }))

const repeated = (items: ReadonlyArray<string>): ReadonlyArray<string> => {
  const seen = new Set<string>()
  return items.filter((item) => seen.size === seen.add(item).size)
}

const missing = (some: ReadonlyArray<string>, others: ReadonlyArray<string>): ReadonlyArray<string> => {
  const there = new Set(others)
  return some.filter((item) => !there.has(item))
}

/**
 * Every held port has exactly one holder: in the records, in the table of ports, on the nodes, and in the free ports.
 */
export const ports: Invariant = {
  name: "no port is held twice, and none leaks",
  problems: ({ end }) => {
    const { nodes, replicas, tables } = end
    const bySummary = tables.servers.flatMap(({ allocations, node_id }) =>
      portsOf(allocations).map((port) => `${node_id} ${port}`)
    )
    const owned = tables.servers.flatMap(({ allocations, id, node_id }) =>
      portsOf(allocations).map((port) => `${node_id} ${port} of ${id}`)
    )
    const rows = tables.ports.map(
      ({ address, node_id, port, server_id }) => `${node_id} ${address}:${port} of ${server_id}`
    )
    return [
      ...repeated(bySummary).map((port) => `${port} is held twice`),
      ...missing(owned, rows).map((port) => `${port} is not reserved`),
      ...missing(rows, owned).map((port) => `${port} is reserved, and not held`),
      ...tables.servers.flatMap(({ allocations, id }) => {
        const port = `${allocations.default.ip}:${allocations.default.port}`
        return portsOf(allocations).includes(port) ? [] : [`${id} does not hold its default ${port}`]
      }),
      ...nodes.flatMap(({ id, instances, ports: offered }) => {
        const held = instances.flatMap((instance) => instance.ports)
        const count = tables.ports.filter(({ node_id }) => node_id === id).length
        return [
          ...repeated(held).map((port) => `${id} has two servers with ${port}`),
          ...missing(
            instances.flatMap((instance) => instance.ports.map((port) => `${id} ${port} of ${instance.id}`)),
            owned
          ).map((port) => `on its node ${port}, which it does not hold`),
          ...replicas.flatMap(({ nodes: seen }, replica) => {
            const free = seen.find((node) => node.id === id)?.ports_free
            return free === offered - count
              ? []
              : [`replica ${replica}: ${id} has ${free} free ports of ${offered}, ${count} are reserved`]
          })
        ]
      })
    ]
  }
}

/** Reservations equal the records, in memory too, and they fit the capacity. */
export const capacity: Invariant = {
  name: "reservations equal the records, and fit the capacity",
  problems: ({ end }) => {
    const { replicas, tables } = end
    const expected = tables.servers.map((row) => `${row.id} on ${row.node_id}: ${memoryOf(row)}`)
    const held = tables.reservations.map(
      ({ memory_bytes, node_id, server_id }) => `${server_id} on ${node_id}: ${memory_bytes}`
    )
    return [
      ...missing(expected, held).map((one) => `not held: ${one}`),
      ...missing(held, expected).map((one) => `held: ${one}; it is not in the records`),
      ...tables.nodes.flatMap(({ capacity: { memory_bytes }, id }) => {
        const there = tables.servers.filter(({ node_id }) => node_id === id)
        const memory = there.reduce((sum, row) => sum + memoryOf(row), 0)
        return [
          ...(memory <= memory_bytes ? [] : [`${id}: ${memory} of ${memory_bytes} are committed`]),
          ...replicas.flatMap(({ nodes: seen }, replica) => {
            const node = seen.find((it) => it.id === id)
            return node?.servers === there.length && node.committed.memory_bytes === memory
              ? []
              : [
                  `replica ${replica}: ${id} has ${node?.servers} servers with ${node?.committed.memory_bytes}; there are ${there.length} with ${memory}`
                ]
          })
        ]
      })
    ]
  }
}
