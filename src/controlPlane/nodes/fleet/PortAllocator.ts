import {
  type Allocations,
  type NodeAllocation,
  type PortRange,
  parsePortRanges,
  withPorts
} from "../../../contract/domain/Allocation.ts"

export type PortMappings = Allocations["mappings"]

interface Address {
  readonly allocation: NodeAllocation
  /** Sorted and disjoint. */
  readonly ranges: ReadonlyArray<PortRange>
  free: number
  /** The port after the last allocated one. */
  cursor: number
}

/** The ports of one node. A released port is reused last, and reservations outlive the offered ranges. */
export class PortAllocator {
  #addresses: ReadonlyArray<Address> = []
  /** Holders by address and port. A port has two until a conflict between replicas is resolved. */
  readonly #holders = new Map<string, Map<number, number>>()

  get free(): number {
    return this.#addresses.reduce((sum, address) => sum + address.free, 0)
  }

  /** The most free ports of one address, as a server has all its ports on one address. */
  get mostOnOneAddress(): number {
    return this.#addresses.reduce((most, { free }) => Math.max(most, free), 0)
  }

  /** Offers these addresses and ports, except reserved ones. Invalid ranges offer nothing. */
  offer(allocations: ReadonlyArray<NodeAllocation>): void {
    const cursors = new Map(this.#addresses.map((address) => [address.allocation.address, address.cursor]))
    this.#addresses = allocations.map((allocation) => {
      const ranges = parsePortRanges(allocation.ports) ?? []
      const offered = ranges.reduce((sum, { first, last }) => sum + last - first + 1, 0)
      const held = [...this.#holdersOf(allocation.address).keys()].filter((port) => offers({ ranges }, port))
      const cursor = cursors.get(allocation.address) ?? 0
      return { allocation, ranges, free: offered - held.length, cursor }
    })
  }

  /** Reserves at least one port on the first address with enough free ones, if there is one. */
  reserve(count: number): Allocations | undefined {
    const address = this.#addresses.find(({ free }) => free >= count)
    if (address === undefined) return undefined
    const { address: ip, alias, force_outgoing_ip } = address.allocation
    const ports = this.reserveMore(ip, count) ?? []
    const [first] = ports
    if (first === undefined) return undefined
    return { force_outgoing_ip, default: { ip, port: first }, alias, mappings: { [ip]: ports } }
  }

  /** Reserves ports where they are free, and others of their address for the rest, if there are so many. */
  reserveLike(wanted: Allocations): Allocations | undefined {
    let allocations = wanted
    const held: Array<PortMappings> = []
    for (const [ip, ports] of Object.entries(wanted.mappings)) {
      const address = this.#address(ip)
      const holders = this.#holdersOf(ip)
      const isFree = (port: number) => address !== undefined && offers(address, port) && !holders.has(port)
      const [taken, free] = [ports.filter((port) => !isFree(port)), ports.filter(isFree)]
      this.hold({ [ip]: free })
      held.push({ [ip]: free })
      const others = taken.length === 0 ? [] : this.reserveMore(ip, taken.length)
      if (others === undefined) {
        for (const mappings of held) this.release(mappings)
        return undefined
      }
      held.push({ [ip]: others })
      allocations = withPorts(
        allocations,
        ip,
        new Map(taken.map((port, at) => [port, others[at] ?? port] as const))
      )
    }
    return allocations
  }

  /** Reserves `count` more ports of an address, if so many are free. */
  reserveMore(ip: string, count: number): ReadonlyArray<number> | undefined {
    const address = this.#address(ip)
    if (address === undefined || address.free < count) return undefined
    const ports: Array<number> = []
    for (let n = 0; n < count; n++) {
      const port = this.#next(address, address.cursor) ?? this.#next(address, 0)
      if (port === undefined) continue
      address.cursor = port + 1
      this.#hold(ip, port)
      ports.push(port)
    }
    return ports
  }

  #next({ allocation, ranges }: Address, from: number): number | undefined {
    const holders = this.#holdersOf(allocation.address)
    for (const { first, last } of ranges) {
      for (let port = Math.max(first, from); port <= last; port++) if (!holders.has(port)) return port
    }
    return undefined
  }

  /**
   * Continues the search for free ports at a share `at` (0 to less than 1) of each address, as other replicas
   * allocate at the current one.
   */
  scatter(at: number): void {
    for (const address of this.#addresses) {
      const first = address.ranges[0]?.first ?? 0
      const last = address.ranges.at(-1)?.last ?? first
      address.cursor = first + Math.floor(at * (last - first + 1))
    }
  }

  /** Reserves these ports, offered or not. */
  hold(mappings: PortMappings): void {
    for (const [ip, ports] of Object.entries(mappings)) {
      for (const port of ports) this.#hold(ip, port)
    }
  }

  #hold(ip: string, port: number): void {
    const holders = this.#holdersOf(ip)
    const before = holders.get(port) ?? 0
    this.#holders.set(ip, holders.set(port, before + 1))
    const address = this.#address(ip)
    if (before === 0 && address !== undefined && offers(address, port)) address.free -= 1
  }

  release(mappings: PortMappings): void {
    for (const [ip, ports] of Object.entries(mappings)) {
      for (const port of ports) this.#release(ip, port)
    }
  }

  #release(ip: string, port: number): void {
    const holders = this.#holdersOf(ip)
    const before = holders.get(port) ?? 0
    if (before > 1) holders.set(port, before - 1)
    if (before !== 1) return
    holders.delete(port)
    if (holders.size === 0) this.#holders.delete(ip)
    const address = this.#address(ip)
    if (address !== undefined && offers(address, port)) address.free += 1
  }

  #holdersOf(ip: string): Map<number, number> {
    return this.#holders.get(ip) ?? new Map()
  }

  #address(ip: string): Address | undefined {
    return this.#addresses.find((address) => address.allocation.address === ip)
  }
}

const offers = ({ ranges }: Pick<Address, "ranges">, port: number): boolean =>
  ranges.some(({ first, last }) => first <= port && port <= last)
