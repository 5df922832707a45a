/** Live figures of the servers that the page shows: one stream for them, and none for the others. */
import { signal } from "@preact/signals"
import { get } from "../api/http.ts"
import { type OpenStream, openStream, pauseBefore } from "../api/stream.ts"
import type { ServerEvent, ServerStats } from "../api/types.ts"

export interface Sample {
  readonly at: number
  readonly stats: ServerStats
}

export const samples = new Map<string, Sample>()
/** Grows with each change of {@link samples}. */
export const sampled = signal(0)

/** Milliseconds in which the wish of the page settles, so that scrolling opens no streams. */
const SETTLE = 400

/** Servers of one stream: its address has their ids. */
const MOST = 100

export const makeStatsStream = (interval: number, onSample: (id: string, sample: Sample) => void) => {
  let wanted = ""
  let stream: OpenStream | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let attempt = 0
  const open = () => {
    stream?.close()
    stream = undefined
    if (wanted === "") return
    const query = `topics=stats&interval=${interval}&${wanted}`
    stream = openStream(`/api/events/ws?${query}`, `/api/events?${query}`, {
      onOpen: () => {
        attempt = 0
      },
      onMessage: (text) => {
        // The service that has sent this page sends events in the form of its contract.
        const { Data, Topic } = JSON.parse(text) as ServerEvent
        if (Topic === "stats")
          onSample(Data.server_id, { at: Date.now(), stats: Data.payload as ServerStats })
      },
      onEnd: ({ kind }) => {
        if (kind !== "refused") timer = setTimeout(open, pauseBefore(attempt++))
      }
    })
  }
  return {
    want: (ids: ReadonlyArray<string>, settle = SETTLE): void => {
      const query = ids
        .slice(0, MOST)
        .toSorted()
        .map((id) => `server_id=${encodeURIComponent(id)}`)
        .join("&")
      if (query === wanted) return
      wanted = query
      clearTimeout(timer)
      timer = setTimeout(open, settle)
    },
    close: (): void => {
      wanted = ""
      clearTimeout(timer)
      stream?.close()
    }
  }
}

let frame = 0

/** Stores a sample; the page shows all samples of a frame together. */
export const keep = (id: string, sample: Sample): void => {
  samples.set(id, sample)
  if (frame !== 0) return
  frame = requestAnimationFrame(() => {
    frame = 0
    sampled.value++
  })
}

/** Reads the figures of all servers once, to sort by them. */
export const readAllStats = async (): Promise<void> => {
  const reply = await get<Readonly<Record<string, ServerStats | null>>>("/api/stats")
  if (!reply.ok) return
  const at = Date.now()
  for (const [id, stats] of Object.entries(reply.body)) if (stats !== null) samples.set(id, { at, stats })
  sampled.value++
}
