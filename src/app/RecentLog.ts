import { Context, Effect, Layer } from "effect"

const LINES = 1000

/** Characters of a line that stay: with {@link LINES}, the memory is bounded. */
const LONGEST = 4096

/** The last lines of the log of this process, for `GET /api/system/log`. */
export class RecentLog extends Context.Service<
  RecentLog,
  {
    /** Adds a line; of more than 1,000 lines, the oldest is dropped. */
    readonly add: (line: string) => void
    /** The last 1,000 lines, oldest first, each cut to 4,096 characters. */
    readonly lines: Effect.Effect<ReadonlyArray<string>>
  }
>()("muster/app/RecentLog") {
  static readonly layer = Layer.sync(RecentLog, () => {
    const lines: Array<string> = []
    let oldest = 0
    return RecentLog.of({
      add: (line) => {
        const kept = line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line
        if (lines.length < LINES) lines.push(kept)
        else {
          lines[oldest] = kept
          oldest = (oldest + 1) % LINES
        }
      },
      lines: Effect.sync(() => [...lines.slice(oldest), ...lines.slice(0, oldest)])
    })
  })
}
