import {
  type Allocations,
  type NodeAllocation,
  type PortRange,
  parsePortRanges
} from "../../domain/Allocation.ts"
import { FreeSet } from "./FreeSet.ts"

/** Ports by address, as in records. */
export type PortMappings = Allocations["mappings"]

interface Address {
  readonly allocation: NodeAllocation
  /** Sorted and disjoint. */
  readonly ranges: ReadonlyArray<PortRange>
  /** The port of number 0 in `free`. */
  readonly base: number
  readonly free: FreeSet
  /** The port after the last allocated one. */
  cursor: number
}

/**
 * The ports of one node. The ports of an address are allocated in ascending order from the last allocated one, so that
 * a released port, which players may still try, is reused last. Reservations are separate from the offered ranges: a
 * node that registers with other ranges takes no port from a server. Every operation takes constant time per port.
 */
export class PortAllocator {
  #addresses: ReadonlyArray<Address> = []
  /**
   * Holders by address and port: all of a port that is not offered, and those after the first of an offered one. There
   * are such ones only until a conflict between replicas is resolved.
   */
  readonly #others = new Map<string, Map<number, number>>()

  /** Number of free ports of all addresses. */
  get free(): number {
    return this.#addresses.reduce((sum, address) => sum + address.free.size, 0)
  }

  /** The most free ports of one address: the bound of one server, whose ports are on one address. */
  get mostOnOneAddress(): number {
    let most = 0
    for (const { free } of this.#addresses) if (free.size > most) most = free.size
    return most
  }

  /** Offers these addresses and ports, except reserved ones. Invalid ranges offer nothing. */
  offer(allocations: ReadonlyArray<NodeAllocation>): void {
    const cursors = new Map(this.#addresses.map((address) => [address.allocation.address, address.cursor]))
    const held = this.#held()
    this.#others.clear()
    this.#addresses = allocations.map((allocation) => {
      const ranges = parsePortRanges(allocation.ports) ?? []
      const base = ranges[0]?.first ?? 0
      const free = new FreeSet((ranges.at(-1)?.last ?? base) - base + 1)
      for (const { first, last } of ranges) free.addRange(first - base, last - base)
      return { allocation, ranges, base, free, cursor: cursors.get(allocation.address) ?? base }
    })
    for (const [ip, port] of held) this.#hold(ip, port)
  }

  /** Returns the address and the port of each holder. */
  #held(): ReadonlyArray<readonly [ip: string, port: number]> {
    const held: Array<readonly [string, number]> = []
    for (const { allocation, base, free, ranges } of this.#addresses) {
      for (const { first, last } of ranges) {
        for (let port = first; port <= last; port++) {
          if (!free.has(port - base)) held.push([allocation.address, port])
        }
      }
    }
    for (const [ip, ports] of this.#others) {
      for (const [port, count] of ports) {
        for (let n = 0; n < count; n++) held.push([ip, port])
      }
    }
    return held
  }

  /** Reserves `count` ports (at least one) on the first address with enough free ones; undefined: none has. */
  reserve(count: number): Allocations | undefined {
    const address = this.#addresses.find((one) => one.free.size >= count)
    if (address === undefined) return undefined
    const { address: ip, alias, force_outgoing_ip } = address.allocation
    const ports = this.reserveMore(ip, count) ?? []
    const [first] = ports
    if (first === undefined) return undefined
    return { force_outgoing_ip, default: { ip, port: first }, alias, mappings: { [ip]: ports } }
  }

  /** Reserves `count` more ports of an address; undefined: so many are not free. */
  reserveMore(ip: string, count: number): ReadonlyArray<number> | undefined {
    const address = this.#address(ip)
    if (address === undefined || address.free.size < count) return undefined
    const ports: Array<number> = []
    for (let n = 0; n < count; n++) {
      const port = take(address)
      if (port !== undefined) ports.push(port)
    }
    return ports
  }

  /**
   * Continues the search for free ports at another place of each address, because other replicas allocate at the
   * current one.
   *
   * @param at from 0 to less than 1: the distance from the first port
   */
  scatter(at: number): void {
    for (const address of this.#addresses) {
      const last = address.ranges.at(-1)?.last ?? address.base
      address.cursor = address.base + Math.floor(at * (last - address.base + 1))
    }
  }

  /** Reserves these ports, offered or not. */
  hold(mappings: PortMappings): void {
    for (const [ip, ports] of Object.entries(mappings)) {
      for (const port of ports) this.#hold(ip, port)
    }
  }

  #hold(ip: string, port: number): void {
    const address = this.#address(ip)
    if (address?.free.delete(port - address.base) === true) return
    const others = this.#others.get(ip) ?? new Map<number, number>()
    this.#others.set(ip, others.set(port, (others.get(port) ?? 0) + 1))
  }

  /** Releases the ports of {@link hold} or {@link reserve}. */
  release(mappings: PortMappings): void {
    for (const [ip, ports] of Object.entries(mappings)) {
      for (const port of ports) this.#release(ip, port)
    }
  }

  #release(ip: string, port: number): void {
    const others = this.#others.get(ip)
    const count = others?.get(port) ?? 0
    if (count > 1) {
      others?.set(port, count - 1)
    } else if (count === 1) {
      others?.delete(port)
      if (others?.size === 0) this.#others.delete(ip)
    } else {
      const address = this.#address(ip)
      if (address !== undefined && offers(address, port)) address.free.add(port - address.base)
    }
  }

  #address(ip: string): Address | undefined {
    return this.#addresses.find((address) => address.allocation.address === ip)
  }
}

const take = (address: Address): number | undefined => {
  const { free, base } = address
  const found = free.next(Math.max(0, address.cursor - base)) ?? free.next(0)
  if (found === undefined) return undefined
  free.delete(found)
  address.cursor = base + found + 1
  return base + found
}

/** Whether `port` is in the ranges of the address, by bisection. */
const offers = (address: Address, port: number): boolean => {
  let low = 0
  let high = address.ranges.length - 1
  while (low <= high) {
    const middle = (low + high) >> 1
    const range = address.ranges[middle]
    if (range === undefined) return false
    if (port < range.first) high = middle - 1
    else if (port > range.last) low = middle + 1
    else return true
  }
  return false
}
