/** The ports of the host that its programs have, found by binding them for a moment. */
import { createSocket } from "node:dgram"
import { createServer, isIPv6 } from "node:net"
import { Effect, Result } from "effect"
import { NetAddress } from "effect/net"
import { portText } from "../../contract/domain/Allocation.ts"
import type { TakenPort } from "../../contract/domain/NodeMessages.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { holderOf, nameOf } from "./procfs.ts"

export interface Busy extends TakenPort {
  readonly protocol: "TCP" | "UDP"
  /** The program, if this service may know it. */
  readonly holder?: string
}

type Wanted = Pick<Busy, "ip" | "port" | "protocol">

/** A port is busy only if it stays so: a container that has ended, or the test of another daemon, frees it soon. */
const CHECKS = 4
const PAUSE = "100 millis"
/** The time to find a program, in which many processes and open files are examined. */
const SEARCH = "2 seconds"

const isInUse = (error: NodeJS.ErrnoException) => error.code === "EADDRINUSE"

/** Any other failure has another cause than the port: the address may belong to a router. */
const isBusy = ({ ip, port, protocol }: Wanted): Effect.Effect<boolean> =>
  Effect.callback<boolean>((resume) => {
    const failed = (error: NodeJS.ErrnoException) => resume(Effect.succeed(isInUse(error)))
    const free = () => resume(Effect.succeed(false))
    if (protocol === "UDP") {
      const socket = createSocket(isIPv6(ip) ? "udp6" : "udp4")
      socket.once("error", failed)
      socket.bind({ address: ip, port, exclusive: true }, () => socket.close(free))
    } else {
      const server = createServer((connection) => connection.destroy())
      server.once("error", failed)
      server.listen({ host: ip, port, exclusive: true }, () => server.close(free))
    }
  })

const busyNow = (wanted: ReadonlyArray<Wanted>) => Effect.filter(wanted, isBusy, { concurrency: "unbounded" })

export const busyPorts = Effect.fnUntraced(function* (ports: ReadonlyArray<TakenPort>) {
  let busy = yield* busyNow(
    ports.flatMap(
      ({ ip, port }): ReadonlyArray<Wanted> => [
        { ip, port, protocol: "TCP" },
        { ip, port, protocol: "UDP" }
      ]
    )
  )
  for (let check = 0; busy.length > 0 && check < CHECKS; check++) {
    yield* Effect.sleep(PAUSE)
    busy = yield* busyNow(busy)
  }
  return busy.length === 0 ? [] : yield* Effect.forEach(busy, withHolder)
})

/** Returns an address in the form of /proc/net: words of four bytes, the last byte first. */
const kernelForm = (ip: string): string | undefined => {
  const address = NetAddress.ipFromString(ip)
  if (Result.isFailure(address)) return undefined
  const octets = NetAddress.isIpv4Address(address.success)
    ? NetAddress.ipv4ToOctets(address.success)
    : NetAddress.ipv6ToOctets(address.success)
  const hex = octets.map((octet) => octet.toString(16).padStart(2, "0").toUpperCase())
  return Array.from({ length: hex.length / 4 }, (_, word) =>
    hex
      .slice(word * 4, word * 4 + 4)
      .toReversed()
      .join("")
  ).join("")
}

const withHolder = Effect.fnUntraced(function* (busy: Wanted): Effect.fn.Return<Busy> {
  const { ip, port, protocol } = busy
  const pid = yield* Effect.timeoutOrElse(
    holderOf({ address: kernelForm(ip) ?? "", port, udp: protocol === "UDP" }),
    { duration: SEARCH, orElse: () => Effect.undefined }
  )
  if (pid === undefined) return busy
  const name = cleanText(nameOf(pid))
  return { ...busy, holder: `${name === "" ? "a program" : name} (pid ${pid})` }
})

/** Returns a clause: `port 127.0.0.1:25565 (TCP) is taken by nginx (pid 12)`. */
export const busyText = (busy: ReadonlyArray<Busy>): string =>
  busy
    .map(
      ({ holder, protocol, ...port }) =>
        `port ${portText(port)} (${protocol}) is taken by ${holder ?? "another program"}`
    )
    .join(", ")
