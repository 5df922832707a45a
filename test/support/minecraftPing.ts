/** The server list ping of a Minecraft client: handshake, status request, ping. Protocol of 1.7 and later. */
import { connect } from "node:net"
import { Effect, Result, Schema } from "effect"
import { ServiceFailed } from "./Service.ts"

/** Minecraft 1.21.4. */
const PROTOCOL = 769
const NEXT_STATE_STATUS = 1

export const ServerStatus = Schema.Struct({
  version: Schema.Struct({ name: Schema.String, protocol: Schema.Int }),
  players: Schema.Struct({ max: Schema.Int, online: Schema.Int }),
  description: Schema.Unknown
})

/** The status of the server, and the number in its pong. */
export interface Pinged {
  readonly status: typeof ServerStatus.Type
  readonly pong: bigint
}

const decodeStatus = Schema.decodeUnknownResult(Schema.fromJsonString(ServerStatus))

/** Encodes 32 bits, seven to a byte, the lowest first. */
const varint = (value: number): Buffer => {
  const bytes: Array<number> = []
  for (let rest = value >>> 0; ; rest >>>= 7) {
    if (rest < 0x80) return Buffer.from([...bytes, rest])
    bytes.push((rest & 0x7f) | 0x80)
  }
}

/** The number at an offset and the offset after it; undefined until all its bytes have arrived. */
const readVarint = (
  bytes: Buffer,
  at: number
): { readonly value: number; readonly end: number } | undefined => {
  let value = 0
  for (let index = 0; index < 5; index++) {
    const byte = bytes[at + index]
    if (byte === undefined) return undefined
    value |= (byte & 0x7f) << (7 * index)
    if (byte < 0x80) return { value, end: at + index + 1 }
  }
  return undefined
}

const text = (value: string): Buffer => {
  const bytes = Buffer.from(value, "utf8")
  return Buffer.concat([varint(bytes.length), bytes])
}

const packet = (id: number, ...parts: ReadonlyArray<Buffer>): Buffer => {
  const body = Buffer.concat([varint(id), ...parts])
  return Buffer.concat([varint(body.length), body])
}

const handshake = (host: string, port: number): Buffer => {
  const portBytes = Buffer.alloc(2)
  portBytes.writeUInt16BE(port)
  return packet(0, varint(PROTOCOL), text(host), portBytes, varint(NEXT_STATE_STATUS))
}

const statusRequest = packet(0)

const pingRequest = (number: bigint): Buffer => {
  const bytes = Buffer.alloc(8)
  bytes.writeBigInt64BE(number)
  return packet(1, bytes)
}

/** The first whole packet and the bytes after it. */
const readPacket = (bytes: Buffer) => {
  const length = readVarint(bytes, 0)
  if (length === undefined || bytes.length < length.end + length.value) return undefined
  const body = bytes.subarray(length.end, length.end + length.value)
  const id = readVarint(body, 0)
  if (id === undefined) return undefined
  return { id: id.value, data: body.subarray(id.end), rest: bytes.subarray(length.end + length.value) }
}

/** Requests the status of a server, then pings it with a number. Fails without a response within 10 s. */
export const minecraftPing = (
  host: string,
  port: number,
  number: bigint
): Effect.Effect<Pinged, ServiceFailed> =>
  Effect.callback<Pinged, ServiceFailed>((resume) => {
    const fail = (message: string) =>
      resume(Effect.fail(new ServiceFailed({ message: `ping of ${host}:${port}: ${message}` })))
    let received: Buffer = Buffer.alloc(0)
    let status: typeof ServerStatus.Type | undefined
    const socket = connect({ host, port }, () =>
      socket.write(Buffer.concat([handshake(host, port), statusRequest]))
    )

    const take = (id: number, data: Buffer) => {
      if (id === 1 && status !== undefined && data.length === 8) {
        return resume(Effect.succeed({ status, pong: data.readBigInt64BE() }))
      }
      const length = readVarint(data, 0)
      if (id !== 0 || length === undefined) return fail(`unexpected packet ${id}`)
      const decoded = decodeStatus(data.subarray(length.end, length.end + length.value).toString("utf8"))
      if (Result.isFailure(decoded)) return fail(`unexpected status: ${decoded.failure}`)
      status = decoded.success
      socket.write(pingRequest(number))
    }
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk])
      for (let next = readPacket(received); next !== undefined; next = readPacket(received)) {
        received = next.rest
        take(next.id, next.data)
      }
    })
    socket.on("error", (error) => fail(error.message))
    socket.on("close", () => fail("the connection ended"))
    return Effect.sync(() => socket.destroy())
  }).pipe(
    Effect.timeoutOrElse({
      duration: "10 seconds",
      orElse: () => Effect.fail(new ServiceFailed({ message: `ping of ${host}:${port}: no answer` }))
    })
  )
