import {
  type Allocations,
  type NodeAllocation,
  type PortRange,
  parsePortRanges
} from "../../domain/Allocation.ts"
import { FreeSet } from "./FreeSet.ts"

/** Ports by address, as records hold them. */
export type PortMappings = Allocations["mappings"]

interface Address {
  readonly allocation: NodeAllocation
  /** Sorted, apart from each other. */
  readonly ranges: ReadonlyArray<PortRange>
  /** The port that number 0 of `free` stands for. */
  readonly base: number
  readonly free: FreeSet
  /** The port after the one handed out last. */
  cursor: number
}

/**
 * The ports of one node. Ports of one address are handed out lowest first, and on from the last one handed out: a
 * port that has just been given back, and that players may still knock at, comes again when the others have had
 * their turn. What servers hold is kept apart from what the node offers now, so that a node which registers with
 * other ranges takes nothing from anybody. Every operation takes constant time for a port.
 */
export class PortAllocator {
  #addresses: ReadonlyArray<Address> = []
  /** By address and port: how many hold it. More than one only until a conflict of replicas is resolved. */
  readonly #held = new Map<string, Map<number, number>>()

  /** Number of free ports of all addresses. */
  get free(): number {
    return this.#addresses.reduce((sum, address) => sum + address.free.size, 0)
  }

  /** Most free ports of one address: what a server can get, since all its ports are on one. */
  get mostOnOneAddress(): number {
    return this.#addresses.reduce((most, address) => Math.max(most, address.free.size), 0)
  }

  /** Offers these addresses and ports from now on, except what is held. Ranges that do not parse offer nothing. */
  offer(allocations: ReadonlyArray<NodeAllocation>): void {
    const cursors = new Map(this.#addresses.map((address) => [address.allocation.address, address.cursor]))
    this.#addresses = allocations.map((allocation) => {
      const ranges = parsePortRanges(allocation.ports) ?? []
      const base = ranges[0]?.first ?? 0
      const free = new FreeSet((ranges.at(-1)?.last ?? base) - base + 1)
      const held = this.#held.get(allocation.address)
      for (const { first, last } of ranges) {
        for (let port = first; port <= last; port++) {
          if (held?.has(port) !== true) free.add(port - base)
        }
      }
      return { allocation, ranges, base, free, cursor: cursors.get(allocation.address) ?? base }
    })
  }

  /** Holds `count` ports (at least one) on the first address that has as many free; undefined when none has. */
  reserve(count: number): Allocations | undefined {
    const address = this.#addresses.find((one) => one.free.size >= count)
    if (address === undefined) return undefined
    const ports: Array<number> = []
    do {
      const port = take(address)
      if (port === undefined) break
      ports.push(port)
    } while (ports.length < count)
    const [first] = ports
    if (first === undefined) return undefined
    const { address: ip, alias, force_outgoing_ip } = address.allocation
    const mappings = { [ip]: ports }
    this.hold(mappings)
    return { force_outgoing_ip, default: { ip, port: first }, alias, mappings }
  }

  /**
   * Goes on looking for ports at another place of each address: others are handing out those where it was about to.
   *
   * @param at from 0 to less than 1: how far from the first port
   */
  scatter(at: number): void {
    for (const address of this.#addresses) {
      const last = address.ranges.at(-1)?.last ?? address.base
      address.cursor = address.base + Math.floor(at * (last - address.base + 1))
    }
  }

  /** Holds these ports, whether they are offered or not. */
  hold(mappings: PortMappings): void {
    for (const [ip, ports] of Object.entries(mappings)) {
      const held = this.#held.get(ip) ?? new Map<number, number>()
      this.#held.set(ip, held)
      const address = this.#address(ip)
      for (const port of ports) {
        held.set(port, (held.get(port) ?? 0) + 1)
        if (address !== undefined && offers(address, port)) address.free.delete(port - address.base)
      }
    }
  }

  /** Gives back what {@link hold} or {@link reserve} has taken. */
  release(mappings: PortMappings): void {
    for (const [ip, ports] of Object.entries(mappings)) {
      const held = this.#held.get(ip)
      const address = this.#address(ip)
      for (const port of ports) {
        const others = (held?.get(port) ?? 0) - 1
        if (others > 0) {
          held?.set(port, others)
        } else {
          held?.delete(port)
          if (address !== undefined && offers(address, port)) address.free.add(port - address.base)
        }
      }
      if (held?.size === 0) this.#held.delete(ip)
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
