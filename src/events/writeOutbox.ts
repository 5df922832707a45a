import type { Writable } from "node:stream"
import { Effect, Stream } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import type { Outbox, OutboxEnd } from "./Outbox.ts"

/** Returns a function that encodes a batch, once for all peers that share it. */
export const sharedBytes = <A>(parts: (batch: ReadonlyArray<A>) => ReadonlyArray<Uint8Array>) => {
  const made = new WeakMap<ReadonlyArray<A>, Uint8Array>()
  return (batch: ReadonlyArray<A>): Uint8Array => {
    const known = made.get(batch)
    if (known !== undefined) return known
    const bytes = Buffer.concat(parts(batch))
    made.set(batch, bytes)
    return bytes
  }
}

/** The connection of a peer, and how items are encoded for it. */
export interface Peer<A> {
  readonly connection: Writable
  /** Whether more may be written. */
  readonly isOpen: () => boolean
  readonly bytesOf: (batch: ReadonlyArray<A>) => Uint8Array
}

/**
 * Writes the items of an outbox as they arrive, on the stack of the publisher: a fiber that wakes for each batch would
 * take most of the time of a delivery, and most of the memory of an idle stream. Returns how to stop.
 *
 * @param onEnd called once the outbox has ended and its items are written
 */
export const writeOutbox = <A>(
  outbox: Outbox<A>,
  { bytesOf, connection, isOpen }: Peer<A>,
  onEnd: (end: OutboxEnd) => void
): (() => void) => {
  const flush = () => {
    while (!connection.writableNeedDrain && isOpen()) {
      const taken = outbox.takeUnsafe()
      if (taken === undefined) return
      if (typeof taken === "string") return onEnd(taken)
      connection.write(bytesOf(taken))
    }
  }
  const ignore = outbox.listenUnsafe(flush)
  connection.on("drain", flush)
  flush()
  return () => {
    ignore()
    connection.off("drain", flush)
  }
}

/**
 * Writes the items before those of an outbox, as fast as the peer reads. It does not wait for the peer once the outbox has
 * ended.
 */
export const writeReplay = <A>(
  replay: Stream.Stream<A, Unavailable>,
  { bytesOf, connection, isOpen }: Peer<A>,
  outbox: Outbox<A>
): Effect.Effect<void, Unavailable> => {
  const mayWrite = () => !connection.writableNeedDrain || !outbox.isOpen
  const drained = Effect.callback<void>((resume) => {
    const look = () => {
      if (!mayWrite()) return
      stop()
      resume(Effect.void)
    }
    const ignore = outbox.listenUnsafe(look)
    const stop = () => {
      connection.off("drain", look)
      ignore()
    }
    connection.on("drain", look)
    return Effect.sync(stop)
  })
  return Stream.runForEachArray(replay, (batch) => {
    // Nothing may follow the closing frame of a WebSocket. The end of the connection interrupts this.
    if (!isOpen()) return Effect.never
    connection.write(bytesOf(batch))
    return mayWrite() ? Effect.void : drained
  })
}
