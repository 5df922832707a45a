/**
 * The helper makes mounts and runs programs for this service, whose own forks would block every request for tens of
 * milliseconds. It is in perl, which Debian always has: Node makes no system calls.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { Socket } from "node:net"
import { arch } from "node:process"
import { Context, Data, Deferred, Effect, Semaphore } from "effect"

/** The environment of system tools, without variables of the service, with all folders of such tools. */
export const TOOL_ENV: Readonly<Record<string, string>> = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/wrappers/bin:/run/current-system/sw/bin",
  LC_ALL: "C"
}

const PROGRAMS = [
  ...["chattr", "chown", "cp", "find", "mkfifo", "mount", "rm", "setquota", "sync", "umount"]
] as const
export type Program = (typeof PROGRAMS)[number]

const MAX_REQUEST = 1 << 20

/** The numbers of the system calls umount2 and prctl by processor; numbers above 423 are the same on all. */
const calls: Partial<Record<NodeJS.Architecture, readonly [umount2: number, prctl: number]>> = {
  x64: [166, 157],
  arm64: [39, 167],
  loong64: [39, 167],
  riscv64: [39, 167]
}

const PROGRAM = readFileSync(new URL("./helper.pl", import.meta.url), "utf8")

/** Returns the command of the helper of a service, unless the processor is unknown. */
export const helperProgram = (
  service = process.pid
): readonly [string, ...ReadonlyArray<string>] | undefined => {
  const numbers = calls[arch]
  if (numbers === undefined) return undefined
  return ["perl", "-e", PROGRAM, "--", ...[service, ...numbers, MAX_REQUEST].map(String), ...PROGRAMS]
}

/** There is no helper: perl is missing, or the request does not fit. The caller does the work itself. */
export class HelperUnavailable extends Data.TaggedError("HelperUnavailable") {}

/** The process of a request was killed: whether the request has been done is unknown. */
export class HelperLost extends Data.TaggedError("HelperLost") {}

/** The answer to a request. Texts end at 4 KiB, or at 32 KiB for `mounts`. */
export interface HelperAnswer {
  readonly code: number
  readonly output: Buffer
  readonly errors: string
}

type Command = "run" | "mount" | "unmount" | "mounts" | "kill"
type Outcome = Effect.Effect<HelperAnswer, HelperUnavailable | HelperLost>
type Answer = Deferred.Deferred<HelperAnswer, HelperUnavailable | HelperLost>

const framed = (body: Buffer): Buffer => {
  const size = Buffer.allocUnsafe(4)
  size.writeUInt32BE(body.length)
  return Buffer.concat([size, body])
}

const frameOf = (words: ReadonlyArray<string>): Buffer =>
  framed(Buffer.concat(words.map((word) => framed(Buffer.from(word)))))

const wordsOf = (body: Buffer): ReadonlyArray<Buffer> => {
  const words: Array<Buffer> = []
  for (let at = 0; at < body.length; ) {
    const end = at + 4 + body.readUInt32BE(at)
    words.push(body.subarray(at + 4, end))
    at = end
  }
  return words
}

class Connection {
  readonly #child: ChildProcess
  readonly #pending = new Map<string, Answer>()
  #received: Buffer = Buffer.alloc(0)
  #hasAnswered = false
  isOpen = true

  constructor(argv: readonly [string, ...ReadonlyArray<string>], onMissing: () => void) {
    const [file, ...args] = argv
    const child = spawn(file, args, { env: TOOL_ENV, stdio: ["pipe", "pipe", "ignore"], detached: true })
    this.#child = child
    child.once("error", (error) => {
      if ("code" in error && error.code === "ENOENT") onMissing()
      this.#end(new HelperUnavailable())
    })
    // At the end of its last process.
    child.once("close", () => this.#end(this.#hasAnswered ? new HelperLost() : new HelperUnavailable()))
    child.once("exit", () => {
      this.isOpen = false
    })
    child.stdin?.on("error", () => {})
    child.stdout?.on("data", (chunk: Buffer) => this.#receive(chunk))
    this.#hold(false)
  }

  send(id: string, command: Command, words: ReadonlyArray<string>, answer: Answer): void {
    if (this.#pending.size === 0) this.#hold(true)
    this.#pending.set(id, answer)
    this.#child.stdin?.write(frameOf([id, command, ...words]))
  }

  stop(id: string): void {
    if (this.#pending.has(id)) this.#child.stdin?.write(frameOf(["", "stop", id]))
  }

  close(): void {
    this.isOpen = false
    this.#child.stdin?.end()
  }

  #end(error: HelperUnavailable | HelperLost): void {
    this.isOpen = false
    for (const id of [...this.#pending.keys()]) this.#answer(id, error)
  }

  #answer(id: string, outcome: Outcome): void {
    const answer = this.#pending.get(id)
    this.#pending.delete(id)
    if (this.#pending.size === 0) this.#hold(false)
    if (answer !== undefined) Deferred.doneUnsafe(answer, outcome)
  }

  #receive(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk])
    this.#hasAnswered = true
    while (this.#received.length >= 4) {
      const end = 4 + this.#received.readUInt32BE(0)
      if (this.#received.length < end) return
      const [id, code, output = Buffer.alloc(0), errors] = wordsOf(this.#received.subarray(4, end))
      this.#received = this.#received.subarray(end)
      const outcome =
        code?.toString() === "lost"
          ? new HelperLost()
          : Effect.succeed({ code: Number(code), output, errors: errors?.toString() ?? "" })
      this.#answer(String(id), outcome)
    }
  }

  #hold(held: boolean): void {
    for (const one of [this.#child, this.#child.stdin, this.#child.stdout]) {
      if (!(one instanceof Socket) && one !== this.#child) continue
      if (held) one.ref()
      else one.unref()
    }
  }
}

/** Programs, and changes of mounts, that run at a time: a long copy does not delay a mount. */
const CONCURRENT = 16

export class HelperProcess {
  readonly #programs = Semaphore.makeUnsafe(CONCURRENT)
  readonly #changes = Semaphore.makeUnsafe(CONCURRENT)
  #connection: Connection | undefined
  #argv: ReturnType<typeof helperProgram>
  #requests = 0

  constructor(argv = helperProgram()) {
    this.#argv = argv
  }

  #connect(): Connection | undefined {
    if (this.#argv === undefined) return undefined
    if (this.#connection?.isOpen !== true) {
      this.#connection = new Connection(this.#argv, () => {
        this.#argv = undefined
      })
    }
    return this.#connection
  }

  /** Does a request. An interruption kills a `run`. @error HelperLost its processes were killed */
  request(command: Command, words: ReadonlyArray<string>): Outcome {
    const sent = this.#send(command, words)
    if (command === "mounts") return sent
    return (command === "run" ? this.#programs : this.#changes).withPermit(sent)
  }

  #send(command: Command, words: ReadonlyArray<string>): Outcome {
    return Effect.uninterruptibleMask((restore): Outcome => {
      const size = words.reduce((sum, word) => sum + 4 + Buffer.byteLength(word), 64)
      const fits = size <= MAX_REQUEST && !words.some((word) => word.includes("\0"))
      const connection = fits ? this.#connect() : undefined
      if (connection === undefined) return new HelperUnavailable()
      const id = String(++this.#requests)
      const answer: Answer = Deferred.makeUnsafe()
      connection.send(id, command, words, answer)
      return Effect.onInterrupt(restore(Deferred.await(answer)), () => {
        connection.stop(id)
        return Effect.exit(Deferred.await(answer))
      })
    })
  }

  /** Ends the helper once its requests are done; a later request starts it again. */
  close(): void {
    this.#connection?.close()
  }
}

/** The helper that this process starts with its first request, and that ends with this process. */
export const Helper = Context.Reference("muster/daemon/Helper", { defaultValue: () => new HelperProcess() })

/** The attempts of a request whose repetition is harmless, if the helper is killed. */
const ATTEMPTS = 3

/** Does a request that may be repeated if the helper was killed meanwhile. */
export const repeatable = (command: Command, words: ReadonlyArray<string>): Outcome =>
  Effect.flatMap(Helper, (helper) => helper.request(command, words)).pipe(
    Effect.retry({ times: ATTEMPTS - 1, while: (error) => error._tag === "HelperLost" })
  )
