import { Schema } from "effect"

export const Port = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65535 }))

/** The addresses and ports that a server holds (spec 3.1). */
export const Allocations = Schema.Struct({
  force_outgoing_ip: Schema.Boolean,
  default: Schema.Struct({ ip: Schema.String, port: Port }),
  alias: Schema.String,
  mappings: Schema.Record(Schema.String, Schema.Array(Port))
}).annotate({ identifier: "Allocations" })
export type Allocations = typeof Allocations.Type

export const PortName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9_]{0,31}$/u, {
    expected: "a name of at most 32 characters from a-z0-9_, a letter first"
  })
)

/** Returns `10.0.0.7:25565` or `[::1]:25565`. */
export const portText = ({ ip, port }: Allocations["default"]): string =>
  `${ip.includes(":") ? `[${ip}]` : ip}:${port}`

/** Returns the ports of the default address, the default port first: a port's number, from 0, is its place here. */
export const portsInOrder = ({ default: { ip, port }, mappings }: Allocations): ReadonlyArray<number> => {
  const others = Object.hasOwn(mappings, ip) ? (mappings[ip] ?? []) : []
  return [port, ...others.filter((other) => other !== port)]
}

export const namedPorts = (
  allocations: Allocations,
  names: ReadonlyArray<string>
): Readonly<Record<string, Allocations["default"]>> => {
  const ports = portsInOrder(allocations)
  const { ip } = allocations.default
  return Object.fromEntries(
    names.flatMap((name, place) => {
      const port = ports[place]
      return port === undefined ? [] : [[name, { ip, port }] as const]
    })
  )
}

/** A port of a server, such as `10.0.0.7:25565`, and the one that it has in its place. */
export const ChangedPort = Schema.Struct({ from: Schema.String, to: Schema.String }).annotate({
  identifier: "ChangedPort"
})

const portTexts = ({ default: main, mappings }: Allocations) => {
  const all = Object.entries(mappings).flatMap(([ip, ports]) => ports.map((port) => portText({ ip, port })))
  return [...new Set([portText(main), ...all])]
}

/** Returns the ports that a server does not have any more, each with the one in its place. */
export const changedPorts = (
  before: Allocations,
  after: Allocations
): ReadonlyArray<typeof ChangedPort.Type> => {
  const now = portTexts(after)
  return portTexts(before).flatMap((from, place) => {
    const to = now[place]
    return to === undefined || to === from ? [] : [{ from, to }]
  })
}

/** Returns the allocations with other ports of an address, by the former ones; each port keeps its place. */
export const withPorts = (
  { default: main, mappings, ...same }: Allocations,
  ip: string,
  others: ReadonlyMap<number, number>
): Allocations => {
  const other = (port: number) => others.get(port) ?? port
  return {
    ...same,
    default: main.ip === ip ? { ip, port: other(main.port) } : main,
    mappings: { ...mappings, [ip]: (mappings[ip] ?? []).map(other) }
  }
}

/** An address of a node and the ports that servers may get on it, e.g. `25565-25700` or `25565,25570-25580`. */
export const NodeAllocation = Schema.Struct({
  address: Schema.NonEmptyString,
  alias: Schema.String,
  force_outgoing_ip: Schema.Boolean,
  ports: Schema.String
}).annotate({ identifier: "NodeAllocation" })
export type NodeAllocation = typeof NodeAllocation.Type

export interface PortRange {
  readonly first: number
  readonly last: number
}

const rangePattern = /^(\d{1,5})(?:-(\d{1,5}))?$/

/** Reads `25565-25700,25800` into sorted, disjoint ranges; undefined for another form or a port outside 1-65535. */
export const parsePortRanges = (text: string): ReadonlyArray<PortRange> | undefined => {
  const ranges: Array<PortRange> = []
  for (const part of text.split(",")) {
    const match = rangePattern.exec(part.trim())
    if (match === null) return undefined
    const first = Number(match[1])
    const last = Number(match[2] ?? match[1])
    if (first < 1 || last > 65535 || first > last) return undefined
    ranges.push({ first, last })
  }
  return mergeRanges(ranges)
}

const mergeRanges = (ranges: ReadonlyArray<PortRange>): ReadonlyArray<PortRange> => {
  const merged: Array<PortRange> = []
  for (const range of [...ranges].sort((a, b) => a.first - b.first)) {
    const previous = merged.at(-1)
    if (previous !== undefined && range.first <= previous.last + 1) {
      merged[merged.length - 1] = { first: previous.first, last: Math.max(previous.last, range.last) }
    } else {
      merged.push(range)
    }
  }
  return merged
}
