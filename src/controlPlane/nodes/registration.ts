import { isIP, isIPv6 } from "node:net"
import { Effect, Option, Result, Schema } from "effect"
import type { HttpServerResponse } from "effect/http"
import { type NodeAllocation, type PortRange, parsePortRanges } from "../../contract/domain/Allocation.ts"
import { InvalidRequest } from "../../contract/domain/errors.ts"
import type { Registration } from "../../contract/domain/NodeMessages.ts"
import {
  cleanText,
  hasHostileCharacters,
  isNodeKey,
  NODE_TEXT_LENGTH
} from "../../contract/domain/NodeText.ts"
import type { NodeRecord } from "../store/repos/NodeRepo.ts"

const MAX_ADDRESSES = 256
const MAX_TEXT = 256
const PLAIN_TEXT = `at most ${MAX_TEXT} characters, none of them a control character`

/** Bound of the text of a port list. Longer lists need ranges. */
const MAX_PORTS = NODE_TEXT_LENGTH

const nodeIdPattern = /^(?!\.{1,2}$)[A-Za-z0-9._~:@-]{1,128}$/
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const control = /[\u0000-\u001f\u007f]/

const refuse = (field: string, expected: string, got: unknown) =>
  Result.fail(
    new InvalidRequest({
      detail: `${field}: expected ${expected}, got ${JSON.stringify(got)?.slice(0, 100)}`,
      hint: "Correct the node's settings and start it again."
    })
  )

/** Returns the canonical spelling of an address, so that two spellings never count as two addresses. */
const canonical = (address: string): string | undefined => {
  if (isIP(address) === 0) return undefined
  if (!isIPv6(address)) return address
  // A zone (`%eth0`) does not parse: servers cannot be reached by it.
  const url = `http://[${address}]`
  return URL.canParse(url) ? new URL(url).hostname.slice(1, -1) : undefined
}

const intersect = (some: ReadonlyArray<PortRange>, others: ReadonlyArray<PortRange>): boolean => {
  let i = 0
  let j = 0
  while (true) {
    const a = some[i]
    const b = others[j]
    if (a === undefined || b === undefined) return false
    if (a.last < b.first) i += 1
    else if (b.last < a.first) j += 1
    else return true
  }
}

/** Whether two addresses can receive the same packets: `::` covers everything, `0.0.0.0` all of IPv4. */
const overlap = (a: string, b: string): boolean =>
  a === "::" || b === "::" || (a === "0.0.0.0" && !isIPv6(b)) || (b === "0.0.0.0" && !isIPv6(a))

const checkAllocations = (
  allocations: ReadonlyArray<NodeAllocation>
): Result.Result<ReadonlyArray<NodeAllocation>, InvalidRequest> => {
  if (allocations.length > MAX_ADDRESSES) {
    return refuse("allocations", `at most ${MAX_ADDRESSES} addresses`, allocations.length)
  }
  const checked = new Map<string, ReadonlyArray<PortRange>>()
  const wild: Array<string> = []
  const result: Array<NodeAllocation> = []
  for (const [index, allocation] of allocations.entries()) {
    const field = `allocations[${index}]`
    const address = canonical(allocation.address)
    if (address === undefined) return refuse(`${field}.address`, "an IP address", allocation.address)
    if (checked.has(address)) {
      return refuse(`${field}.address`, "each address once, with all its ports", allocation.address)
    }
    if (allocation.ports.length > MAX_PORTS) {
      return refuse(`${field}.ports`, `at most ${MAX_PORTS} characters: ranges of ports`, allocation.ports)
    }
    const ranges = parsePortRanges(allocation.ports)
    if (ranges === undefined) {
      return refuse(`${field}.ports`, "ports such as 25565-25700 or 25565,25570-25580", allocation.ports)
    }
    const isWild = address === "::" || address === "0.0.0.0"
    const clash = (isWild ? [...checked.keys()] : wild).find(
      (other) => overlap(address, other) && intersect(ranges, checked.get(other) ?? [])
    )
    if (clash !== undefined) {
      return refuse(`${field}.ports`, `ports that ${clash} does not offer too`, allocation.ports)
    }
    if (allocation.alias.length > MAX_TEXT || control.test(allocation.alias)) {
      return refuse(`${field}.alias`, PLAIN_TEXT, allocation.alias)
    }
    if (isWild) wild.push(address)
    checked.set(address, ranges)
    result.push({ ...allocation, address, alias: cleanText(allocation.alias) })
  }
  return Result.succeed(result)
}

const isOwn = (address: string): boolean =>
  address.startsWith("127.") || address === "::1" || address === "0.0.0.0" || address === "::"

/** Returns a line per address where two nodes offer the same ports: two servers may get one port. */
export const sharedPorts = (
  { allocations, id }: Pick<NodeRecord, "id" | "allocations">,
  others: ReadonlyArray<Pick<NodeRecord, "id" | "allocations">>
): ReadonlyArray<string> => {
  const own = new Map(
    allocations
      .filter(({ address }) => !isOwn(address))
      .map(({ address, ports }) => [address, parsePortRanges(ports) ?? []])
  )
  if (own.size === 0) return []
  return others.flatMap((other) => {
    if (other.id === id) return []
    return other.allocations.flatMap(({ address, ports }) =>
      intersect(own.get(address) ?? [], parsePortRanges(ports) ?? [])
        ? [
            `nodes ${id} and ${other.id} offer the same ports of ${address}: give each its own, unless they are in different networks`
          ]
        : []
    )
  })
}

export type Registered = Omit<NodeRecord, "token" | "drained" | "last_seen_at" | "embedded" | "unreachable">

/** A node with rare heartbeats would be lost and found again in turn. */
const tooSeldom = (heartbeat_seconds: number, timeoutSeconds: number) =>
  Result.fail(
    new InvalidRequest({
      detail: `MUSTER_NODE_HEARTBEAT is ${heartbeat_seconds} s, and a node is lost here after ${timeoutSeconds} s without one`,
      hint: `Set MUSTER_NODE_HEARTBEAT to ${Math.max(1, Math.floor(timeoutSeconds / 3))} and start the node again, or raise MUSTER_NODE_HEARTBEAT_TIMEOUT of the service.`
    })
  )

/**
 * Returns the record of a registration with canonical addresses, or the mistake in it. Control characters are
 * refused; format characters, which a name may have for its looks, are replaced.
 */
export const registered = (
  registration: Registration,
  timeoutSeconds = Number.POSITIVE_INFINITY
): Result.Result<Registered, InvalidRequest> => {
  const { id, name, location, url, version, boot_id, capacity, heartbeat_seconds, runtimes, system } =
    registration
  if (!nodeIdPattern.test(id)) return refuse("id", "1-128 characters from A-Z a-z 0-9 . _ ~ : @ -", id)
  if (name === "") return refuse("name", "a name", name)
  if (!isNodeKey(boot_id)) return refuse("boot_id", "the id of this start of the daemon", boot_id)
  for (const [field, text] of Object.entries({ name, location, version })) {
    if (text.length > MAX_TEXT || control.test(text)) return refuse(field, PLAIN_TEXT, text)
  }
  if (hasHostileCharacters(version)) return refuse("version", PLAIN_TEXT, version)
  if (url.length > NODE_TEXT_LENGTH || hasHostileCharacters(url)) {
    return refuse("url", `the address of the daemon, of at most ${NODE_TEXT_LENGTH} characters`, url)
  }
  for (const [field, value] of Object.entries(capacity)) {
    if (!(value >= 0)) return refuse(`capacity.${field}`, "a number that is not negative", value)
  }
  if (heartbeat_seconds !== undefined && heartbeat_seconds >= timeoutSeconds) {
    return tooSeldom(heartbeat_seconds, timeoutSeconds)
  }
  return Result.map(checkAllocations(registration.allocations), (allocations) => ({
    id,
    name: cleanText(name),
    location: cleanText(location),
    url,
    version,
    boot_id,
    allocations,
    capacity,
    runtimes: [...new Set(runtimes)],
    system,
    departed: false,
    connected: true,
    gone: null
  }))
}

const NODES = 1000
const REASONS = 20

const ErrorText = Schema.fromJsonString(Schema.Struct({ detail: Schema.String, hint: Schema.String }))
const decodeText = Schema.decodeUnknownOption(ErrorText)

const textOf = (response: HttpServerResponse.HttpServerResponse): string => {
  const { body } = response
  const text = body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : ""
  return Option.match(decodeText(text), {
    onNone: () => `status ${response.status}`,
    onSome: ({ detail, hint }) => `${detail} (${response.status}). ${hint}`
  })
}

/** Logs each reason of a refused registration once until the node registers, because a daemon retries forever. */
export const makeLogRefusedRegistrations = () => {
  const logged = new Map<string, Set<string>>()
  const isNew = (node: string, reason: string): boolean => {
    const reasons = logged.get(node) ?? new Set()
    if (reasons.has(reason) || reasons.size >= REASONS) return false
    logged.set(node, reasons.add(reason))
    const [oldest] = logged.keys()
    if (logged.size > NODES && oldest !== undefined) logged.delete(oldest)
    return true
  }
  return (node: string, response: HttpServerResponse.HttpServerResponse): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (response.status < 300) logged.delete(node)
      if (response.status < 400 || response.status >= 500) return Effect.void
      // Callers without a key can send any number of these, each with another name.
      if (response.status === 400 || response.status === 429) return Effect.void
      const reason = textOf(response)
      if (!isNew(node, reason)) return Effect.void
      return Effect.logWarning(`registration refused: ${reason}`.replace(/\p{Cc}/gu, " ")).pipe(
        Effect.annotateLogs({ node_id: node })
      )
    })
}
