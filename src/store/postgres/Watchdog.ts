import type { Socket } from "node:net"

/** Looks that have to find nothing new before a peer counts as silent. */
const LOOKS = 8

/**
 * Ends a connection whose peer owes an answer and says nothing for too long. The system would wait for minutes: for a
 * machine that has vanished, or for ever: for one that is frozen and whose kernel goes on acknowledging.
 *
 * It counts looks, not time: when this process itself was held up, what has come meanwhile is read before the next look.
 */
export class Watchdog {
  readonly #socket: Socket
  readonly #within: number
  #timer: NodeJS.Timeout | undefined
  #read = 0
  #silent = 0

  /** @param within milliseconds of silence; infinite: the peer may take its time */
  constructor(socket: Socket, within: number) {
    this.#socket = socket
    this.#within = within
  }

  /** An answer is due from now on. */
  start(): void {
    if (!Number.isFinite(this.#within)) return
    this.stop()
    this.#silent = 0
    this.#read = this.#socket.bytesRead
    this.#timer = setInterval(() => this.#look(), this.#within / LOOKS)
  }

  /** The answer is complete. */
  stop(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    if (this.#socket.bytesRead !== this.#read) {
      this.#read = this.#socket.bytesRead
      this.#silent = 0
      return
    }
    this.#silent += 1
    if (this.#silent < LOOKS) return
    this.stop()
    this.#socket.destroy(new Error(`no answer within ${this.#within} ms`))
  }
}
