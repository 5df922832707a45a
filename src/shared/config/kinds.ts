/** The kinds of settings: the accepted texts and their reading; undefined: refused. */
import { isIP } from "node:net"
import { normalize } from "node:path"
import { ByteSize, Option, Redacted, Result } from "effect"
import { Host, IpNetwork } from "effect/net"
import { type NodeAllocation, parsePortRanges } from "../../contract/domain/Allocation.ts"
import { type DatabaseUrl, parseDatabaseUrl, withoutSecrets } from "./DatabaseUrl.ts"

export const text = { may: "any text", read: (value: string) => value }

export const secretText = { may: "any text", read: (value: string) => Redacted.make(value.trim()) }

export const optionalSecret = {
  may: "any text",
  read: (value: string): Option.Option<Redacted.Redacted<string>> =>
    value === "" ? Option.none() : Option.some(Redacted.make(value))
}

export const path = {
  may: "a path",
  read: (value: string) => (value === "" || value.includes("\0") ? undefined : value)
}

export const file = {
  may: "unset or the path of a file",
  read: (value: string) => (value.includes("\0") ? undefined : value)
}

export const number = (minimum: number, maximum: number) => ({
  may: `a number from ${minimum} to ${maximum}`,
  read: (value: string) => {
    const parsed = value.trim() === "" ? Number.NaN : Number(value)
    return parsed >= minimum && parsed <= maximum ? parsed : undefined
  }
})

export const whole = (minimum: number, maximum: number) => ({
  may: `a whole number from ${minimum} to ${maximum}`,
  read: (value: string) => {
    const parsed = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN
    return parsed >= minimum && parsed <= maximum ? parsed : undefined
  }
})

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const LONGEST_LIFETIME = 3650 * UNITS.d

/** A time such as `12h`, in ms; 0: none. */
export const lifetime = {
  may: "0, or a time such as 90m, 12h or 7d, at most 3650d",
  read: (value: string) => {
    if (value === "0") return 0
    const [, digits = "", unit = ""] = /^([1-9]\d{0,8})([smhd])$/.exec(value) ?? []
    const millis = Object.entries(UNITS).find(([name]) => name === unit)?.[1]
    const parsed = millis === undefined ? Number.NaN : Number(digits) * millis
    return parsed <= LONGEST_LIFETIME ? parsed : undefined
  }
}

export const portOrNone = {
  may: "unset or a port from 0 to 65535",
  read: (value: string): Option.Option<number> | undefined => {
    if (value === "") return Option.none()
    const port = whole(0, 65_535).read(value)
    return port === undefined ? undefined : Option.some(port)
  }
}

/** A host, which may have a port, by which clients reach the service. */
export const hostOrNone = {
  may: "unset, a host such as sftp.example.com, or a host and a port such as sftp.example.com:2022",
  read: (value: string): Option.Option<{ readonly host: string; readonly port?: number }> | undefined => {
    if (value === "") return Option.none()
    const [, bracketed, plain = "", digits] = /^(?:\[(.+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(value) ?? []
    const host = bracketed ?? plain
    const port = digits === undefined ? undefined : whole(1, 65_535).read(digits)
    if (!isHost(host) || (digits !== undefined && port === undefined)) return undefined
    return Option.some({ host, ...(port === undefined ? {} : { port }) })
  }
}

export const oneOf = <const A extends string>(...values: ReadonlyArray<A>) => ({
  may: values.map((value) => `"${value}"`).join(" or "),
  read: (value: string) => values.find((candidate) => candidate === value)
})

export const yesNo = {
  may: '"true" or "false"',
  read: (value: string) => (value === "true" ? true : value === "false" ? false : undefined)
}

export const yesNoAuto = {
  may: '"true", "false" or "auto"',
  read: (value: string) => (value === "auto" ? ("auto" as const) : yesNo.read(value))
}

export const list = {
  may: "a comma-separated list",
  read: (value: string): ReadonlyArray<string> =>
    value
      .split(",")
      .map((item) => item.trim())
      .filter((item) => item !== "")
}

/** Bytes a second; 0: no limit. */
export const rate = {
  may: "0, or bytes a second with a unit, such as 500KiB, 50MiB or 1GiB, at least 1KiB",
  read: (value: string) => {
    if (value === "0") return 0
    const bytes = Option.flatMap(ByteSize.fromString(value), ByteSize.toNumber)
    return Option.getOrUndefined(Option.filter(bytes, (number) => number >= 1024))
  }
}

/** Absolute paths of folders, without `/`, `.` and `..`. */
export const folders = {
  may: "a comma-separated list of absolute paths such as /mnt/backups, without / itself",
  read: (value: string): ReadonlyArray<string> | undefined => {
    const items = list.read(value).map((item) => item.replace(/\/+$/, ""))
    const isPlain = (item: string) => item.startsWith("/") && !item.includes("\0") && normalize(item) === item
    return items.every(isPlain) ? items : undefined
  }
}

export const origins = {
  may: "a comma-separated list of origins such as https://panel.example.com, or *",
  read: (value: string): ReadonlyArray<string> | undefined => {
    const items = list.read(value)
    return items.every((item) => item === "*" || /^https?:\/\/[^/\s,]+$/.test(item)) ? items : undefined
  }
}

export const networks = {
  may: "a comma-separated list of networks such as 10.0.0.0/8",
  read: (value: string): ReadonlyArray<IpNetwork.IpNetwork> | undefined => {
    const read = list.read(value).map((item) => IpNetwork.fromString(item))
    return read.every(Result.isSuccess) ? read.map((item) => item.success) : undefined
  }
}

export const databaseUrl = {
  may: "unset (SQLite in the data folder), sqlite:file or postgres://user:password@host:port/database?sslmode=require",
  read: (value: string): DatabaseUrl | { readonly _tag: "DataFolder" } | undefined =>
    value === "" ? { _tag: "DataFolder" } : parseDatabaseUrl(value),
  show: withoutSecrets
}

/** Largest uid of Linux: 4294967295 means none. */
const LAST_UID = 4_294_967_294

export const uids = {
  may: "two uids above 0, such as 70000-79999",
  read: (value: string): { readonly first: number; readonly last: number } | undefined => {
    const [, from, to] = /^(\d{1,10})-(\d{1,10})$/.exec(value.trim()) ?? []
    const [first, last] = [Number(from), Number(to)]
    return first > 0 && first <= last && last <= LAST_UID ? { first, last } : undefined
  }
}

const isAddress = (value: string) => /^https?:\/\//.test(value) && URL.canParse(value)

export const address = {
  may: "an address such as https://muster.example.com",
  read: (value: string) => (isAddress(value) ? value : undefined)
}

export const controlAddress = {
  may: "an address such as https://muster.example.com, or unix: and the path of a socket",
  read: (value: string) => (isAddress(value) || /^unix:[^\0]+$/.test(value) ? value : undefined)
}

export const optionalAddress = {
  may: "unset or an address such as http://10.0.0.7:5585",
  read: (value: string) => (value === "" || isAddress(value) ? value : undefined)
}

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
