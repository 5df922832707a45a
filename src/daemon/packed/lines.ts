/**
 * What a backup consists of, wherever it is stored: the walk through the files, the lines of the index, and the tar of a
 * server and its base (spec 12.12). Imports `access`, `archives` and `disk`. Read first: `walk.ts`, this file, `mergedTar.ts`.
 *
 * The lines are entries as JSON, by name, folders before what is in them. Those of a server are merged with those of its base.
 */
import { Cause, Effect, Option, Schema, type Scope, Stream } from "effect"
import { readPackedEntry } from "../../contract/domain/Backup.ts"
import { nameBytes } from "../../contract/domain/Files.ts"
import type { ArchiveError } from "../archives/member.ts"
import { decompressed } from "../archives/source.ts"
import type { IoError } from "../disk/fsio.ts"
import { differs } from "./pieces.ts"

/** A path of 4,094 bytes, each as an escape of JSON, and as the target of a link. */
const LONGEST_LINE = 128 * 1024
const NEWLINE = 0x0a
const INDEX = "the index of the backup"

type Bytes = Stream.Stream<Uint8Array, ArchiveError>
type Lines = Stream.Stream<ReadonlyArray<string>, ArchiveError>

/** Returns a function that divides the bytes of an index into lines, as they arrive. */
export const makeLines = () => {
  let rest: Buffer = Buffer.alloc(0)
  return (chunk: Uint8Array): Effect.Effect<ReadonlyArray<string>, IoError> => {
    const bytes = rest.length === 0 ? Buffer.from(chunk) : Buffer.concat([rest, chunk])
    const end = bytes.lastIndexOf(NEWLINE)
    rest = bytes.subarray(end + 1)
    if (rest.length > LONGEST_LINE) return Effect.fail(differs(INDEX, "a line is too long"))
    return Effect.succeed(end < 1 ? [] : bytes.toString("utf8", 0, end).split("\n"))
  }
}

/** Returns the lines of an index, some at a time. */
export const linesOf = (index: Bytes): Lines =>
  Stream.suspend(() => Stream.mapEffect(decompressed("tar.zst", index), makeLines()))

const unreadable = differs(INDEX, "a line cannot be read")

/** Reads a line of an index. */
export const entryOf = (line: string) =>
  Option.match(readPackedEntry(line), { onNone: () => Effect.fail(unreadable), onSome: Effect.succeed })

/** The beginning of a line: its path as a text of JSON, and its type. */
const beginning = /^\{"path":("(?:[^"\\]|\\.)*"),"type":"([a-z]+)"/

const decodePath = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.String))

interface Head {
  readonly line: string
  /** The path with one character for each byte, and slashes before all others: its order is the one of the lines. */
  readonly key: string
  readonly type: string
}

const headOf = (line: string): Effect.Effect<Head, ArchiveError> => {
  const [, text, type = ""] = beginning.exec(line) ?? []
  return Option.match(decodePath(text), {
    onNone: () => Effect.fail(unreadable),
    onSome: (path) => {
      const key = Buffer.from(nameBytes(path)).toString("latin1").replaceAll("/", "\0")
      return Effect.succeed({ line, key, type })
    }
  })
}

/** Reads the lines of an index one by one, as far as they are in memory. */
const makeCursor = Effect.fnUntraced(function* (lines: Lines): Effect.fn.Return<
  {
    /** Reads lines, unless some are left. */
    readonly fill: Effect.Effect<void, ArchiveError>
    /** Returns the next line, if one is in memory. */
    readonly head: () => Head | undefined
    readonly advance: () => void
    readonly isDone: () => boolean
  },
  never,
  Scope.Scope
> {
  const pull = yield* Stream.toPull(lines)
  let heads: ReadonlyArray<Head> = []
  let at = 0
  let isDone = false
  const fill = Effect.gen(function* () {
    while (at >= heads.length && !isDone) {
      const chunks = yield* Effect.catchIf(Effect.asSome(pull), Cause.isDone, () => Effect.succeedNone)
      isDone = Option.isNone(chunks)
      heads = Option.isNone(chunks) ? [] : yield* Effect.forEach(chunks.value.flat(), headOf)
      at = 0
    }
  })
  return {
    fill,
    head: () => heads[at],
    advance: () => {
      at += 1
    },
    isDone: () => isDone
  }
})

/**
 * Returns the lines of all files of a server: those of its own index, and those of the base at other paths. What lies at or
 * below a removed path of the base is left out, and so is what lies below another entry than a folder.
 */
export const merged = (base: Lines, own: Lines): Lines =>
  Stream.unwrap(
    Effect.gen(function* () {
      const [below, above] = [yield* makeCursor(base), yield* makeCursor(own)]
      let left: string | undefined
      /** Merges what is in memory. */
      const merge = () => {
        const lines: Array<string> = []
        for (;;) {
          const [theirs, mine] = [below.head(), above.head()]
          if (theirs === undefined ? !below.isDone() : left !== undefined && theirs.key.startsWith(left)) {
            if (theirs === undefined) return lines
            below.advance()
          } else if (mine === undefined) {
            if (theirs === undefined || !above.isDone()) return lines
            lines.push(theirs.line)
            below.advance()
          } else if (theirs !== undefined && theirs.key < mine.key) {
            lines.push(theirs.line)
            below.advance()
          } else {
            if (theirs?.key === mine.key) below.advance()
            above.advance()
            if (mine.type !== "folder") left = `${mine.key}\0`
            if (mine.type !== "removed") lines.push(mine.line)
          }
        }
      }
      return Stream.unfold(
        undefined,
        Effect.fnUntraced(function* () {
          yield* below.fill
          yield* above.fill
          const isEnd = below.head() === undefined && above.head() === undefined
          return isEnd ? undefined : ([merge(), undefined] as const)
        })
      )
    })
  )
