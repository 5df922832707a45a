/** The kind of the settings for addresses and ports of servers. */
import { isIP } from "node:net"
import { Result } from "effect"
import { Host } from "effect/net"
import { type NodeAllocation, parsePortRanges } from "../../contract/domain/Allocation.ts"

const reversed = /\b(\d{1,5})-(\d{1,5})(?=\s*(?:[,;=]|$))/g

const reversedRange = (text: string): string | undefined => {
  for (const [range, first, last] of text.matchAll(reversed)) {
    if (Number(first) > Number(last)) return `the range ${range} is reversed, write ${last}-${first}`
  }
  return undefined
}

/** Domain names may have characters that host names do not, and a zone means nothing to players. */
const isHost = (text: string) => /^[A-Za-z0-9.:-]+$/.test(text) && Result.isSuccess(Host.hostFromString(text))

/** Reads `[2001:db8::7]:25565-25664=play.example.com`; the failure is the mistake, if it can be named. */
const parseEntry = (text: string): Result.Result<NodeAllocation, string | undefined> => {
  const equals = text.indexOf("=")
  const target = equals === -1 ? text : text.slice(0, equals)
  const alias = equals === -1 ? undefined : text.slice(equals + 1).trim()
  const colon = target.lastIndexOf(":")
  const ports = target.slice(colon + 1).trim()
  const address = target
    .slice(0, Math.max(0, colon))
    .trim()
    .replace(/^\[(.*)\]$/, "$1")
  if (isIP(address) === 0 || parsePortRanges(ports) === undefined) return Result.fail(reversedRange(target))
  if (alias !== undefined && !isHost(alias)) {
    return Result.fail(`the alias ${JSON.stringify(alias)} is not a host name`)
  }
  return Result.succeed({ address, alias: alias ?? "", force_outgoing_ip: false, ports })
}

/** Returns the one spelling of an address. */
const spellingOf = (address: string) =>
  Result.match(Host.hostFromString(address), { onFailure: () => address, onSuccess: Host.formatHost })

const parse = (value: string): Result.Result<ReadonlyArray<NodeAllocation>, string | undefined> => {
  const read = new Map<string, NodeAllocation>()
  for (const text of value.split(";")) {
    const entry = parseEntry(text)
    if (Result.isFailure(entry)) return Result.fail(entry.failure)
    const address = spellingOf(entry.success.address)
    if (read.has(address)) return Result.fail(`${address} is there twice, give all its ports at once`)
    read.set(address, entry.success)
  }
  return Result.succeed([...read.values()])
}

export const allocations = {
  may: "IP address:ports, such as 127.0.0.1:25565-25664, or with an alias 10.0.0.7:25565-25664=play.example.com; IPv6 in brackets; several separated by ;",
  read: (value: string) => Result.getOrUndefined(parse(value)),
  wrong: (value: string) => {
    const read = parse(value)
    return Result.isFailure(read) ? read.failure : undefined
  }
}
