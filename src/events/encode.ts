import type { JournalEntry, PublicChange } from "../domain/Journal.ts"
import { cleanText } from "../domain/NodeText.ts"
import type { Topic } from "../domain/ServerEvent.ts"
import type { EncodedEvent } from "./EncodedEvent.ts"

const textEncoder = new TextEncoder()

/** Runs `make` on the first call only: most events are never sent in most of their forms. */
const once = <A>(make: () => A): (() => A) => {
  let made: { readonly value: A } | undefined
  return () => {
    made ??= { value: make() }
    return made.value
  }
}

/**
 * The forms of one event (contract, 6.1 to 6.4). Each is made on its first use and then shared by all subscribers. Keys
 * are in the order of the contract, with `Cursor` last.
 */
class Encoded implements EncodedEvent {
  readonly cursor: number
  readonly topic: Topic
  readonly server_id: string
  readonly blueprint_id: string
  readonly text: string
  readonly sse: Uint8Array
  private readonly withId: () => Uint8Array
  private readonly withCursor: () => string
  private readonly bytesWithCursor: () => Uint8Array

  constructor(entry: JournalEntry, { server_id, topic }: PublicChange, payload: unknown) {
    const { cursor, blueprint_id } = entry
    const message = { Topic: topic, Data: { server_id, payload } }
    this.cursor = cursor
    this.topic = topic
    this.server_id = server_id
    this.blueprint_id = blueprint_id
    this.text = JSON.stringify(message)
    const lines = `event: ${topic}\ndata: ${this.text}\n\n`
    this.sse = textEncoder.encode(lines)
    this.withId = once(() => textEncoder.encode(`id: ${cursor}\n${lines}`))
    this.withCursor = once(() => JSON.stringify({ ...message, Cursor: cursor }))
    this.bytesWithCursor = once(() => textEncoder.encode(this.withCursor()))
  }

  get sseWithId() {
    return this.withId()
  }
  get textWithCursor() {
    return this.withCursor()
  }
  get frame() {
    // The part between `data: ` and the blank line of the SSE form, without a second copy of the JSON.
    return this.sse.subarray(`event: ${this.topic}\ndata: `.length, this.sse.length - 2)
  }
  get frameWithCursor() {
    return this.bytesWithCursor()
  }
}

/** Longest event in any of its forms, in bytes: each text of a node in an event is at most 1,024 characters. */
export const MAX_EVENT_BYTES = 64 * 1024

/**
 * Returns the public event of an entry; undefined: the change is internal. Entries of earlier versions may have
 * unbounded texts of nodes, which are bounded here.
 */
export const encode = (entry: JournalEntry): EncodedEvent | undefined => {
  const { change } = entry
  switch (change.topic) {
    case "status":
      return new Encoded(entry, change, change.payload)
    case "crash": {
      const { reason, exit_code, timestamp } = change.payload
      return new Encoded(entry, change, {
        reason: cleanText(reason),
        exit_code,
        timestamp: cleanText(timestamp)
      })
    }
    case "deleted":
      return new Encoded(entry, change, null)
    default:
      return undefined
  }
}
