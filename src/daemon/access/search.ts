/** The search for files by name and by text (spec 10.3). */
import type { FileHandle } from "node:fs/promises"
import { Effect, Option } from "effect"
import { type FileMatch, nameOf } from "../../contract/domain/Files.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { SearchFiles } from "../../contract/nodeApi/NodeFilesApi.ts"
import { io } from "../disk/safePath.ts"
import { glob } from "./patterns.ts"
import { type AccessError, unprocessable } from "./refused.ts"
import type { Site } from "./Site.ts"
import { type Visible, walkVisible } from "./visible.ts"

const MOST_SECONDS = "10 seconds"
const MOST_FILES = 200_000
const MOST_BYTES = 1024 ** 3
const MOST_MATCHES = 1000
const LONGEST_TEXT = 1000

const CHUNK = 256 * 1024
/** Bytes of a line before and after a match that the excerpt has. */
const BEFORE = 60
const AFTER = 180
const NEWLINE = 0x0a

/** Makes ASCII letters small, in place. Other letters differ by case in all encodings. */
const lower = (bytes: Buffer): Buffer => {
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0
    if (byte >= 0x41 && byte <= 0x5a) bytes[at] = byte | 0x20
  }
  return bytes
}

const excerptOf = (bytes: Buffer, at: number, length: number): string => {
  const begin = at === 0 ? 0 : bytes.lastIndexOf(NEWLINE, at - 1) + 1
  const end = bytes.indexOf(NEWLINE, at)
  const line = bytes.subarray(
    Math.max(begin, at - BEFORE),
    Math.min(end === -1 ? bytes.length : end, at + length + AFTER)
  )
  return cleanText(line.toString("utf8").trim())
}

const countLines = (bytes: Buffer, from: number, to: number): number => {
  let lines = 0
  for (let at = bytes.indexOf(NEWLINE, from); at !== -1 && at < to; at = bytes.indexOf(NEWLINE, at + 1))
    lines++
  return lines
}

/** Finds a text in pieces of a file: each line counts once, and a binary file has one match without a line. */
class TextFinder {
  readonly #needle: Buffer
  readonly #isExact: boolean
  /** The end of the pieces so far, in which a match may begin, and the line of its first byte. */
  #kept: Buffer = Buffer.alloc(0)
  #line = 1
  /** Whether the line that the next byte belongs to has a match already. */
  #isReported = false
  #isBinary: boolean | undefined
  isDone = false

  constructor(text: string, isExact: boolean) {
    this.#isExact = isExact
    this.#needle = isExact ? Buffer.from(text) : lower(Buffer.from(text))
  }

  /** Returns the matches whose excerpts are complete with the next piece. */
  next(path: string, piece: Buffer, isLast: boolean): ReadonlyArray<FileMatch> {
    this.#isBinary ??= piece.includes(0)
    const bytes = Buffer.concat([this.#kept, piece])
    const searched = this.#isExact ? bytes : lower(Buffer.from(bytes))
    const end = isLast ? bytes.length : bytes.length - this.#needle.length - AFTER
    const found: Array<FileMatch> = []
    let counted = 0
    let from = 0
    const passLine = (at: number) => {
      const newline = bytes.indexOf(NEWLINE, at)
      this.#isReported = newline === -1
      from = newline === -1 ? bytes.length : newline + 1
    }
    if (this.#isReported) passLine(0)
    for (;;) {
      const at = searched.indexOf(this.#needle, from)
      if (at === -1 || at >= end) break
      if (this.#isBinary) {
        this.isDone = true
        return [{ path }]
      }
      this.#line += countLines(bytes, counted, at)
      counted = at
      found.push({ path, line: this.#line, excerpt: excerptOf(bytes, at, this.#needle.length) })
      passLine(at)
    }
    const keep = Math.max(from, end - BEFORE)
    this.#line += countLines(bytes, counted, keep)
    this.#kept = bytes.subarray(keep)
    return found
  }
}

export const searchFiles = Effect.fnUntraced(function* (site: Site, request: SearchFiles) {
  const { case_sensitive: isExact, name, path, text } = request
  if (name === undefined && (text === undefined || text === ""))
    return yield* unprocessable("neither name nor text is given", "Send a glob of names, a text, or both.")
  if (Math.max(name?.length ?? 0, text?.length ?? 0) > LONGEST_TEXT)
    return yield* unprocessable(`name or text has more than ${LONGEST_TEXT} characters`, "Search for less.")
  const limit = Math.min(MOST_MATCHES, Math.max(1, request.limit))
  const matchesName = name === undefined ? () => true : glob(isExact ? name : name.toLowerCase())
  const matches: Array<FileMatch> = []
  let files = 0
  let bytes = 0
  const full = (reason: "limit" | "matches") => Effect.fail(reason)

  const inFile = Effect.fnUntraced(function* (shown: string, handle: FileHandle, wanted: string) {
    const finder = new TextFinder(wanted, isExact)
    for (let isLast = false; !isLast && !finder.isDone; ) {
      const chunk = Buffer.allocUnsafe(CHUNK)
      const { bytesRead } = yield* io(shown, () => handle.read(chunk, 0, CHUNK, null))
      isLast = bytesRead === 0
      bytes += bytesRead
      matches.push(...finder.next(shown, chunk.subarray(0, bytesRead), isLast))
      if (matches.length >= limit) return yield* full("matches")
      if (bytes > MOST_BYTES) return yield* full("limit")
    }
  })

  const look = Effect.fnUntraced(function* ({ open, path: shown, stats }: Visible) {
    files += 1
    if (files > MOST_FILES) return yield* full("limit")
    const own = nameOf(shown)
    if (shown === path || !matchesName(isExact ? own : own.toLowerCase())) return
    if (text === undefined || text === "") {
      matches.push({ path: shown })
      return matches.length >= limit ? yield* full("matches") : undefined
    }
    if (!stats.isFile()) return
    const file = yield* open
    if (Option.isSome(file)) yield* inFile(shown, file.value, text)
  })

  const outcome = yield* walkVisible<AccessError | "limit" | "matches">(site, path, look).pipe(
    Effect.as("all" as const),
    Effect.catchIf(
      (error) => error === "limit" || error === "matches",
      (reason) => Effect.succeed(reason)
    ),
    Effect.timeoutOption(MOST_SECONDS)
  )
  return {
    matches: matches.slice(0, limit),
    incomplete: Option.isNone(outcome) || outcome.value === "limit"
  }
})
