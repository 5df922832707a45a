/** A client of the subsystem `sftp` that sends any bytes, and reads the answers as they are. */
import { Effect, Queue } from "effect"
import type { ClientChannel } from "ssh2"
import type { Service } from "../../../support/Service.ts"
import { call, connect } from "./sftp.ts"

export const word = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}
export const long = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(value)
  return bytes
}
export const text = (value: string | Uint8Array): Buffer => {
  const bytes = Buffer.from(value)
  return Buffer.concat([word(bytes.length), bytes])
}
/** A packet with its length. */
export const framed = (...fields: ReadonlyArray<Uint8Array>): Buffer => {
  const body = Buffer.concat(fields)
  return Buffer.concat([word(body.length), body])
}
export const packet = (type: number, id: number, ...fields: ReadonlyArray<Uint8Array>): Buffer =>
  framed(Buffer.from([type]), word(id), ...fields)
export const init = framed(Buffer.from([1]), word(3))

export interface RawAnswer {
  readonly type: number
  readonly id: number
  /** The code of a status. */
  readonly code: number
  readonly body: Buffer
}

export const openRaw = Effect.fnUntraced(function* (service: Service, username: string, password: string) {
  const client = yield* connect(service, username, password)
  const channel = yield* call<ClientChannel>((done) => client.subsys("sftp", done))
  const answers = yield* Queue.unbounded<RawAnswer | "closed">()
  let received = Buffer.alloc(0)
  channel.on("data", (bytes: Buffer) => {
    received = Buffer.concat([received, bytes])
    while (received.length >= 4 && received.length >= 4 + received.readUInt32BE(0)) {
      const body = received.subarray(4, 4 + received.readUInt32BE(0))
      received = received.subarray(4 + body.length)
      const [id, code] = [body.readUInt32BE(1), body.length < 9 ? 0 : body.readUInt32BE(5)]
      Queue.offerUnsafe(answers, { type: body.readUInt8(0), id, code, body: body.subarray(5) })
    }
  })
  channel.on("close", () => void Queue.offerUnsafe(answers, "closed"))
  channel.on("error", () => {})
  const send = (...bytes: ReadonlyArray<Uint8Array>) =>
    Effect.sync(() => void channel.write(Buffer.concat(bytes)))
  const next = Queue.take(answers)
  return {
    client,
    channel,
    send,
    /** Returns the next answer, or that the channel has closed. */
    next,
    /** Sends a packet and returns its answer. */
    ask: (...bytes: ReadonlyArray<Uint8Array>) => Effect.andThen(send(...bytes), next)
  }
})
