/** The lines of a console: the stored ones, then the live ones, without a gap and without a repetition. */
import { type Failure, get, post, segment } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import { type OpenStream, openStream, pauseBefore } from "../../api/stream.ts"
import { overlap } from "../../dom/overlap.ts"

/** Colours and weights of text: the only sequences that a line may contain. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is read
const STYLES = /^\u001b\[[0-9;:]*m/

/** An escape sequence of any kind: control strings, control sequences, and those of two or three characters. */
const SEQUENCE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is removed
  /\u001b(?:[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)/g

/** Control characters except the tab, and characters that turn the direction of a text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed
const CONTROL = /[\u0000-\u0008\u000a-\u001a\u001c-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

/** Returns a line with its colours only: a server moves no cursor, clears no screen and sets no title. */
export const cleanLine = (line: string): string => {
  const clean = line
    .replace(SEQUENCE, (sequence) => (STYLES.test(sequence) ? sequence : ""))
    .replace(CONTROL, "")
  return clean.includes("\u001b") ? `${clean}\u001b[0m` : clean
}

const LINES = 1000
/** Milliseconds between two readings with a key that may not open consoles. */
const EVERY = 2500
/** Milliseconds by which a live line may arrive after it was stored. */
const BEHIND = 1000

export interface ConsoleHandlers {
  readonly onReplace: (lines: ReadonlyArray<string>) => void
  readonly onLines: (lines: ReadonlyArray<string>) => void
  /** Receives the state for people, which is empty while live. */
  readonly onState: (text: string) => void
}

export interface ConsoleStream {
  readonly send: (line: string) => Promise<Failure | undefined>
  readonly close: () => void
}

const stored = async (id: string): Promise<ReadonlyArray<string> | Failure> => {
  const reply = await get<{ readonly data: ReadonlyArray<string> }>(
    `/api/servers/${segment(id)}/logs?per_page=${LINES}`
  )
  return reply.ok ? reply.body.data : reply
}

const isLines = (read: ReadonlyArray<string> | Failure): read is ReadonlyArray<string> => !("ok" in read)

export const followConsole = (id: string, handlers: ConsoleHandlers): ConsoleStream => {
  let isClosed = false
  let timer: ReturnType<typeof setTimeout> | undefined
  let stream: OpenStream | undefined
  let attempt = 0
  let last: ReadonlyArray<string> = []

  const poll = async () => {
    const read = await stored(id)
    if (isClosed) return
    if (!isLines(read)) handlers.onState(read.detail)
    else {
      const known = overlap(last, read)
      if (known === 0) handlers.onReplace(read)
      else handlers.onLines(read.slice(known))
      last = read
    }
    timer = setTimeout(() => void poll(), EVERY)
  }

  const connect = () => {
    /** Live lines that may be among the stored ones, until these are read. */
    let early: Array<string> | undefined = []
    /** Reads the stored lines, which the first live ones repeat. */
    const fill = async (failures: number) => {
      const read = await stored(id)
      if (isClosed || early === undefined) return
      if (!isLines(read)) {
        handlers.onState(read.detail)
        timer = setTimeout(() => void fill(failures + 1), pauseBefore(failures))
        return
      }
      handlers.onReplace(read)
      handlers.onState("")
      timer = setTimeout(() => {
        const waiting = early ?? []
        early = undefined
        handlers.onLines(waiting.slice(overlap(read, waiting)))
      }, BEHIND)
    }
    const path = `/api/servers/${segment(id)}/console`
    stream = openStream(path, path, {
      onOpen: () => {
        attempt = 0
        void fill(0)
      },
      onMessage: (line) => {
        if (early === undefined) handlers.onLines([line])
        else early.push(line)
      },
      onEnd: (ending) => {
        early = undefined
        clearTimeout(timer)
        if (isClosed) return
        handlers.onState(
          ending.kind === "refused" ? ending.detail : "The console broke off; it is opened again."
        )
        if (ending.kind !== "refused") timer = setTimeout(connect, pauseBefore(attempt++))
      }
    })
  }

  if (whyNot("console") === undefined) connect()
  else void poll()

  return {
    send: async (line) => {
      if (stream?.send(line) === true) return undefined
      const reply = await post(`/api/servers/${segment(id)}/commands`, { commands: [line] })
      return reply.ok ? undefined : reply
    },
    close: () => {
      isClosed = true
      clearTimeout(timer)
      stream?.close()
    }
  }
}
