/** The entries of a backup, and single files of it, without its whole archive (spec 12.9). */
import { Cause, Effect, Option, Stream } from "effect"
import type { PackedEntry } from "../../contract/domain/Backup.ts"
import { nameBytes, nameOf } from "../../contract/domain/Files.ts"
import type { ContentsOfBackup, LookedAt, LookInto } from "../../contract/nodeApi/NodeBackups.ts"
import { TAR_END } from "../archives/format.ts"
import type { ArchiveError } from "../archives/member.ts"
import { entryOf } from "../packed/lines.ts"
import { bytesInTar, storedBytes } from "../packed/mergedTar.ts"
import { between, digestChecked, until } from "../packed/pieces.ts"
import { linesIn, type Manifest, openTar } from "./manifest.ts"
import type { BackupTarget } from "./target.ts"

/** Entries in memory beside those of the page, before they are sorted. */
const SLACK = 2000

type Bytes = Stream.Stream<Uint8Array, ArchiveError>

/** Returns the name of an entry with one character for each byte: texts have the order of bytes. */
const keyOf = ({ path }: PackedEntry) => Buffer.from(nameBytes(nameOf(path))).toString("latin1")

/** The first entries after a name, in the order of their bytes. Only these are kept in memory. */
const makePage = (after: string | undefined, most: number) => {
  const first = after === undefined ? undefined : Buffer.from(nameBytes(after)).toString("latin1")
  let found: Array<{ readonly key: string; readonly entry: PackedEntry }> = []
  const sort = () => {
    found.sort((a, b) => (a.key < b.key ? -1 : 1))
    found = found.slice(0, most)
  }
  return {
    add: (entry: PackedEntry) => {
      const key = keyOf(entry)
      if (first !== undefined && key <= first) return
      found.push({ key, entry })
      if (found.length >= most + SLACK) sort()
    },
    get entries() {
      sort()
      return found.map(({ entry }) => entry)
    }
  }
}

/**
 * Returns the entry at a path, and a page of what a folder has. It reads the whole index, and so compares its digests,
 * unless the size alone is wanted, and the manifest has it.
 */
export const lookInto = Effect.fnUntraced(function* (
  target: BackupTarget,
  manifest: Pick<Manifest, "archive_bytes" | "base" | "index">,
  { after, limit, measures, path }: LookInto
): Effect.fn.Return<LookedAt, ArchiveError> {
  const { archive_bytes } = manifest
  if (measures === true && limit === 0 && archive_bytes !== undefined) return { entries: [], archive_bytes }
  // Each line begins with its path, and JSON does not escape slashes.
  const text = `{"path":${JSON.stringify(path)}`
  const own = `${text},`
  const below = path === "/" ? text.slice(0, -1) : `${text.slice(0, -1)}/`
  const page = makePage(after, limit + 1)
  let entry: PackedEntry | undefined
  let tar = TAR_END.length
  const isChild = (line: string) => {
    const slash = line.indexOf("/", below.length)
    return slash === -1 || slash > line.indexOf('","type":', below.length)
  }
  const use = Effect.fnUntraced(function* (lines: ReadonlyArray<string>) {
    for (const line of lines) {
      if (measures === true) tar += bytesInTar(yield* entryOf(line))
      if (line.startsWith(own)) entry = yield* entryOf(line)
      else if (limit > 0 && line.startsWith(below) && isChild(line)) page.add(yield* entryOf(line))
    }
  })
  yield* Stream.runForEach(linesIn(target, manifest), use)
  const found = page.entries
  const entries = found.slice(0, limit)
  const last = found.length > limit ? entries.at(-1) : undefined
  return {
    entries,
    ...(entry === undefined ? {} : { entry }),
    ...(last === undefined ? {} : { next: nameOf(last.path) }),
    ...(measures === true ? { archive_bytes: storedBytes(tar) } : {})
  }
})

/** Reads the first bytes of a stream: a failure before them is one of the effect. */
export const begun = Effect.fnUntraced(function* (bytes: Bytes) {
  const pull = yield* Stream.toPull(bytes)
  const first = yield* Effect.catchIf(Effect.asSome(pull), Cause.isDone, () => Effect.succeedNone)
  return Option.match(first, {
    onNone: () => Stream.empty,
    onSome: (chunks) => Stream.concat(Stream.fromIterable(chunks), Stream.fromPull(Effect.succeed(pull)))
  })
})

/**
 * Returns bytes of a file of a backup, from a frame near its beginning. The file is read whole, and compared with its
 * digest before its last byte is passed on.
 */
export const contentsOf = (
  target: BackupTarget,
  manifest: Manifest,
  { at, end, sha256, size, start }: ContentsOfBackup
) => {
  const { bytes, from } = openTar(target, manifest)(at)
  const file = until(bytes, at - from, at - from + size)
  return begun(
    digestChecked(file, `a file of backup ${manifest.id}`, sha256, (whole) => between(whole, start, end + 1))
  )
}
