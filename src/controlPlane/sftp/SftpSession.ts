/** One subsystem `sftp`: receives the packets of its channel and answers them (spec 10.6). Read next: `answers.ts`. */
import { Writable } from "node:stream"
import { Effect, FiberSet, Latch, Queue, Semaphore } from "effect"
import type { ServerChannel } from "ssh2"
import type { FileError, OpenFile } from "../../contract/nodeApi/NodeFiles.ts"
import { freeMemory } from "../../shared/work/freeMemory.ts"
import { makeAnswering } from "./answers.ts"
import { codeOf, Handles, malformed, textOf } from "./handles.ts"
import * as sftp from "./packets.ts"
import type { Volume } from "./Volume.ts"

/** Bytes of reads and writes that are in progress. */
const IN_FLIGHT = 1024 * 1024
/** Bytes of packets that wait; the channel pauses above this, and continues below a half of it. */
const WAITING = 1024 * 1024
/** Messages that wait in a channel that pauses. Each takes some hundred bytes of memory, even with one byte of data. */
const MOST_MESSAGES = 8192
/** Bytes that wait to be sent, in the channel or the connection. Reads wait above this. */
const UNSENT = 512 * 1024
/** Bytes that are encrypted in one turn of the event loop: other requests wait meanwhile. */
const PER_TURN = 128 * 1024

const EXTENSIONS = [
  ["posix-rename@openssh.com", "1"],
  ["statvfs@openssh.com", "2"],
  ["fstatvfs@openssh.com", "2"],
  ["fsync@openssh.com", "1"],
  ["limits@openssh.com", "1"],
  ["copy-data", "1"]
] as const

/** Sends packets, {@link PER_TURN} bytes a turn, and lets reads wait while too much is unsent. */
const makeSending = (
  channel: ServerChannel,
  unsentOf: () => number,
  onDrain: (drained: () => void) => void
) => {
  let sentNow = 0
  const paced = new Writable({
    write: (bytes: Buffer, _, done) => {
      sentNow += bytes.length
      channel.write(bytes, () => {
        look()
        if (sentNow < PER_TURN) return done()
        setImmediate(() => {
          sentNow = 0
          done()
        })
      })
    }
  })
  const room = Latch.makeUnsafe(true)
  const closed = Latch.makeUnsafe(false)
  const look = () => {
    if (!closed.isOpen() && paced.writableLength + unsentOf() > UNSENT) room.closeUnsafe()
    else room.openUnsafe()
  }
  onDrain(look)
  // Nothing is sent any more, and the channel does not say so for what waits.
  channel.on("close", () => {
    closed.openUnsafe()
    look()
  })
  /** Sends bytes that only the caller has, and frees their memory. */
  const send = (bytes: Uint8Array) => {
    const { length } = bytes
    for (let at = 0; at < length; at += PER_TURN)
      paced.write(bytes.subarray(at, at + PER_TURN), () => at + PER_TURN >= length && freeMemory(bytes))
    look()
  }
  const sent = Effect.callback<void>((resume) => void paced.end(() => resume(Effect.void)))
  return { send, room: room.await, flushed: Effect.raceFirst(sent, closed.await) }
}

/** Cuts what arrives into packets; the channel pauses while too many wait. Returns undefined once the channel has ended, or `stopping` has. */
const receivePackets = Effect.fnUntraced(function* (channel: ServerChannel, stopping: Effect.Effect<void>) {
  const packets = yield* Queue.unbounded<Buffer | undefined>()
  const reader = new sftp.PacketReader()
  let waiting = 0
  const end = () => Queue.offerUnsafe(packets, undefined)
  let isBroken = false
  /** A client that does not answer the close may send for as long as it likes: nothing of it is kept. */
  const broken = () => {
    isBroken = true
    channel.resume()
    end()
  }
  let messages = 0
  const push = channel.push.bind(channel)
  channel.push = (bytes: Buffer | null) => {
    if (bytes !== null && bytes.length > 0) messages += 1
    if (messages > MOST_MESSAGES && !isBroken) broken()
    return push(bytes)
  }
  channel.on("data", (bytes: Buffer) => {
    messages -= 1
    if (isBroken) return
    reader.add(bytes)
    for (let packet = reader.next(); packet !== undefined; packet = reader.next()) {
      if (packet === "invalid") return broken()
      waiting += packet.length + 64
      Queue.offerUnsafe(packets, packet)
    }
    if (waiting > WAITING) channel.pause()
  })
  channel.on("end", end).on("close", end)
  yield* Effect.forkScoped(Effect.andThen(stopping, Effect.sync(end)))
  return Effect.map(Queue.take(packets), (packet) => {
    if (packet === undefined) return undefined
    waiting -= packet.length + 64
    if (waiting < WAITING / 2 && channel.isPaused()) channel.resume()
    return packet
  })
})

/** Serves a channel until it ends, or a packet breaks the protocol. */
export const serveSftp = Effect.fnUntraced(function* (
  channel: ServerChannel,
  volume: Volume,
  connection: {
    readonly unsent: () => number
    readonly onDrain: (drained: () => void) => void
    /** Returns once the service stops: what has arrived until then is answered. */
    readonly stopping: Effect.Effect<void>
  }
) {
  const next = yield* receivePackets(channel, connection.stopping)
  const { flushed, room, send } = makeSending(channel, connection.unsent, connection.onDrain)
  const handles = new Handles()
  yield* Effect.addFinalizer(() => handles.closeAll)
  const answer = makeAnswering(volume, handles)
  const fibers = yield* FiberSet.make<void>()
  const budget = yield* Semaphore.make(IN_FLIGHT)

  const answered = (id: number, effect: Effect.Effect<void, FileError>) =>
    Effect.catch(effect, (error) =>
      Effect.sync(() => send(sftp.statusPacket(id, codeOf(error), textOf(error))))
    )

  const read = Effect.fnUntraced(function* (
    id: number,
    { file }: { readonly file: OpenFile },
    at: number,
    length: number
  ) {
    const bytes = yield* file.read(at, length)
    if (bytes.length === 0) return send(sftp.statusPacket(id, sftp.EOF, ""))
    send(sftp.dataHead(id, bytes.length))
    send(bytes)
  })

  /** Runs a read or write beside others, within the budget. */
  const beside = (id: number, bytes: number, effect: Effect.Effect<void, FileError>) =>
    Effect.andThen(
      Semaphore.take(budget, bytes),
      FiberSet.run(fibers, Effect.ensuring(answered(id, effect), Semaphore.release(budget, bytes)))
    )

  const transfer = Effect.fnUntraced(function* (type: number, id: number, body: sftp.PacketBody) {
    const handle = yield* handles.file(body.text())
    const at = body.uint64()
    if (type === sftp.READ) {
      const length = Math.min(body.uint32(), sftp.LARGEST_READ)
      if (body.isMalformed) return yield* malformed
      yield* room
      return yield* beside(id, length + 1, read(id, handle, at, length))
    }
    const bytes = body.string()
    if (body.isMalformed) return yield* malformed
    const write = Effect.flatMap(
      handle.appends ? Effect.map(handle.file.stat, ({ size }) => size) : Effect.succeed(at),
      (offset) => handle.file.write(offset, bytes)
    )
    const written = Effect.map(write, () => send(sftp.statusPacket(id, sftp.OK, "")))
    // An append begins where the one before it ends.
    if (handle.appends) return yield* answered(id, written)
    yield* beside(id, bytes.length + 1, written)
  })

  let isBegun = false
  while (true) {
    const packet = yield* next
    if (packet === undefined) {
      yield* FiberSet.awaitEmpty(fibers)
      break
    }
    const type = packet.readUInt8(0)
    if (!isBegun) {
      if (type !== sftp.INIT) break
      isBegun = true
      send(sftp.versionPacket(EXTENSIONS))
      continue
    }
    if (packet.length < 5) break
    const id = packet.readUInt32BE(1)
    const body = new sftp.PacketBody(packet, 5)
    if (type === sftp.READ || type === sftp.WRITE) {
      yield* answered(id, transfer(type, id, body))
      continue
    }
    // Reads and writes may overtake each other, and nothing else.
    yield* FiberSet.awaitEmpty(fibers)
    yield* room
    yield* answered(id, Effect.map(answer(type, id, body), send))
  }
  yield* flushed
}, Effect.scoped)
