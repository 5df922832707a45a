/** Members of tar archives, read as their bytes arrive. */
import { Effect, Stream } from "effect"
import * as Tar from "effect/encoding/Tar"
import {
  type ArchiveError,
  damaged,
  type Member,
  MOST_MEMBERS,
  refuseMember,
  tooManyMembers,
  type UseMember
} from "./member.ts"

/** Bytes beside contents that may precede a member: long names and extended headers, or the filler at the end. */
const MOST_BESIDE = 4 * 1024 * 1024
/** Extended records of a member, of which those of global headers remain in memory. */
const MOST_RECORDS = 256

const kinds: Readonly<Record<string, Member["kind"]>> = {
  File: "file",
  Directory: "folder",
  Symlink: "link"
}

const others: Readonly<Record<string, string>> = {
  Hardlink: "it is a hard link",
  CharDevice: "it is a device",
  BlockDevice: "it is a device",
  Fifo: "it is a pipe"
}

const memberOf = Effect.fnUntraced(function* (header: Tar.Header, contents: Member["contents"]) {
  const { linkTarget = "", mode, mtime, path, pax, size, type } = header
  const name = Buffer.from(path)
  // The decoder replaces bytes that are not UTF-8.
  if (path.includes("\uFFFD") || linkTarget.includes("\uFFFD"))
    return yield* refuseMember(name, "its name or target is not UTF-8", "Rename it, then pack it again.")
  if (Object.keys(pax).length > MOST_RECORDS)
    return yield* refuseMember(name, `it has more than ${MOST_RECORDS} extended attributes`)
  const kind = type === "File" && path.endsWith("/") && size === 0 ? "folder" : kinds[type]
  if (kind === undefined) {
    return yield* refuseMember(
      name,
      others[type] ?? "it is neither a file, a folder nor a link",
      type === "Hardlink" ? "Pack with tar --hard-dereference." : undefined
    )
  }
  return {
    name,
    kind,
    mode,
    mtime: mtime.getTime() / 1000,
    size,
    target: Buffer.from(linkTarget),
    contents
  } satisfies Member
})

export const readTar = Effect.fnUntraced(function* (
  bytes: Stream.Stream<Uint8Array, ArchiveError>,
  use: UseMember
): Effect.fn.Return<void, ArchiveError> {
  let members = 0
  let read = 0
  let inContents = 0
  let besideBefore = 0
  const bounded = Stream.tap(bytes, (chunk) => {
    read += chunk.length
    return read - inContents - besideBefore > MOST_BESIDE + chunk.length
      ? damaged(`${MOST_BESIDE} bytes of it belong to no file`)
      : Effect.void
  })
  const explained = (error: Tar.TarError | ArchiveError): ArchiveError =>
    error._tag === "TarError"
      ? damaged(members === 0 && error.kind !== "Unsupported" ? "it has no tar in it" : error.message)
      : error
  yield* Stream.pipeThroughChannel(bounded, Tar.decode<ArchiveError>()).pipe(
    Stream.mapError(explained),
    Stream.runForEach(
      Effect.fnUntraced(function* (entry) {
        members += 1
        if (members > MOST_MEMBERS) return yield* tooManyMembers()
        besideBefore = read - inContents
        const contents = entry.body.pipe(
          Stream.mapError(explained),
          Stream.tap((chunk) =>
            Effect.sync(() => {
              inContents += chunk.length
            })
          )
        )
        yield* use(yield* memberOf(entry.header, contents))
      })
    )
  )
})
