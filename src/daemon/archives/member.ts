/**
 * Readers of archives, which write no file (spec 10.7). `source.ts` begins with any archive, `tar.ts` and `zip.ts` find its
 * members, `zipDirectory.ts` has the records of zip. `access/Stage.ts` writes the members.
 */
import { Effect, Stream } from "effect"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { type FileError, FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import type { PathRefused } from "../disk/safePath.ts"

export type ArchiveError = FileError | PathRefused | IoError

/** An entry of an archive, as the archive has it. */
export interface Member {
  /** Bytes of its path. */
  readonly name: Buffer
  readonly kind: "file" | "folder" | "link"
  /** Permission bits; unset if the archive has none. */
  readonly mode: number | undefined
  /** Seconds since the epoch. */
  readonly mtime: number
  /** Bytes of the contents. */
  readonly size: number
  /** Where a link leads to. */
  readonly target: Buffer
  readonly contents: Stream.Stream<Uint8Array, ArchiveError>
}

export type UseMember = (member: Member) => Effect.Effect<void, ArchiveError>

export const MOST_MEMBERS = 200_000
export const LONGEST_TARGET = 4095

/** Unpacked bytes from which on the ratio counts, and the most unpacked bytes for a byte of the archive. */
const RATIO_FROM = 100 * 1024 * 1024
const MOST_RATIO = 200

const LONGEST_SHOWN = 200

/** Returns the name of a member for messages. */
export const shownMember = (name: Buffer): string => {
  const text = cleanText(name.toString("utf8"))
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}...` : text
}

export const unprocessable = (detail: string, hint: string) => new FileRefused({ status: 422, detail, hint })

export const refuseMember = (
  name: Buffer,
  why: string,
  hint = "Remove it from the archive, then try again."
) => unprocessable(`archive entry ${shownMember(name)}: ${why}`, hint)

export const damaged = (why: string) =>
  unprocessable(`the archive is damaged: ${why}`, "Pack it again, and check that it arrived whole.")

/** Bytes that are read at a time. */
const PIECE = 256 * 1024

/** Reads the bytes of a range. `whyEnded` has the failure of a source that ends before. */
export const bytesBetween = <E, E2>(
  from: number,
  end: number,
  read: (at: number, length: number) => Effect.Effect<Uint8Array, E>,
  whyEnded: () => E2
): Stream.Stream<Uint8Array, E | E2> =>
  Stream.unfold(from, (at): Effect.Effect<readonly [Uint8Array, number] | undefined, E | E2> => {
    if (at >= end) return Effect.succeed(undefined)
    return Effect.flatMap(read(at, Math.min(PIECE, end - at)), (bytes) =>
      bytes.length === 0 ? Effect.fail(whyEnded()) : Effect.succeed([bytes, at + bytes.length] as const)
    )
  })

/** The refusal of an archive that changes while it is read. */
export const shortened = () => damaged("it became shorter while it was read")

export const tooManyMembers = () =>
  unprocessable(`the archive has more than ${MOST_MEMBERS} entries`, "Split it into several archives.")

/** Returns the refusal of an archive that unpacks to far more bytes than it has, if it does. */
export const whyBomb = (packed: number, unpacked: number) =>
  unpacked > RATIO_FROM && unpacked > packed * MOST_RATIO
    ? unprocessable(
        `the archive unpacks to more than ${MOST_RATIO} times its size`,
        "Send such files without compression, one by one or as tar."
      )
    : undefined
