import type { Socket } from "node:net"

/** Checks without new bytes after which a peer counts as silent. */
const LOOKS = 8

/**
 * Ends a connection whose peer owes an answer and is silent for too long. The system would wait for minutes (a host
 * that vanished) or for ever (a frozen process whose kernel acknowledges).
 *
 * It counts checks instead of time: if this process itself was paused, the bytes that arrived meanwhile are read before
 * the next check.
 */
export class Watchdog {
  readonly #socket: Socket
  readonly #within: number
  #timer: NodeJS.Timeout | undefined
  #read = 0
  #silent = 0

  /** @param within milliseconds of silence; infinite: no bound */
  constructor(socket: Socket, within: number) {
    this.#socket = socket
    this.#within = within
  }

  /** Starts the wait for an answer. */
  start(): void {
    if (!Number.isFinite(this.#within)) return
    this.stop()
    this.#silent = 0
    this.#read = this.#socket.bytesRead
    this.#timer = setInterval(() => this.#look(), this.#within / LOOKS)
  }

  /** Ends the wait: the answer is complete. */
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
    this.#socket.destroy(new Error(`no response within ${this.#within} ms`))
  }
}
