import type { Invariant, StreamEvent } from "../History.ts"
import type { JournalRow } from "../Snapshot.ts"

const ofJournal = ({ cursor, payload, server_id, topic }: JournalRow): string =>
  `${cursor} ${JSON.stringify({ Topic: topic, Data: { server_id, payload } })}`

const ofMessage = ({ cursor, text }: StreamEvent): string => `${cursor} ${JSON.stringify(JSON.parse(text))}`

/** Every subscriber received all public events, once and in order, at any replica and across any reconnections. */
export const streams: Invariant = {
  name: "every subscriber received the same events",
  problems: ({ end, subscribers }) => {
    const open = end.tables.journal.filter(({ topic }) => !topic.includes(":")).map(ofJournal)
    return subscribers.flatMap(({ name, received }) => {
      const seen = received.map(ofMessage)
      const at = Array.from({ length: Math.max(seen.length, open.length) }, (_, index) => index).find(
        (index) => seen[index] !== open[index]
      )
      return at === undefined
        ? []
        : [`${name}, message ${at}: ${seen[at] ?? "none"}; the journal: ${open[at] ?? "none"}`]
    })
  }
}
