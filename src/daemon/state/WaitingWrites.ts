import { Effect } from "effect"
import { type Fork, OnDemand } from "../../work/OnDemand.ts"
import type { ServerFile } from "./ServerFile.ts"

/** The time between two looks at the servers that wait, in ms. */
const LOOK = 250
/** Writes at a time. */
const CONCURRENT = 16

/** Writes the states of servers that wait, with one fiber for all servers of a node, while there are any. */
export class WaitingWrites {
  readonly #fork: Fork
  readonly #files = new Set<ServerFile>()
  readonly #work = new OnDemand()

  constructor(fork: Fork) {
    this.#fork = fork
  }

  /** Adds a server that waits. */
  add(file: ServerFile): void {
    this.#files.add(file)
    this.#work.start(this.#fork, () => this.#files.size > 0, Effect.delay(this.#writeDue, LOOK))
  }

  get #writeDue(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const now = performance.now()
      const due: Array<ServerFile> = []
      for (const file of this.#files) {
        const until = file.waitsUntil()
        if (until === undefined) this.#files.delete(file)
        else if (until <= now) due.push(file)
      }
      const written = (file: ServerFile) => Effect.annotateLogs(file.flush, { server_id: file.get().spec.id })
      return Effect.forEach(due, written, { concurrency: CONCURRENT, discard: true })
    })
  }
}
