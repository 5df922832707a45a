/**
 * The bases of servers in a target (spec 12.12): each is stored once, by the digest of its entries, and before any manifest
 * that needs it.
 */
import { createHash } from "node:crypto"
import { basename, dirname, join } from "node:path"
import { Effect, Option, Stream } from "effect"
import type { BackupKind } from "../../contract/domain/Backup.ts"
import { serverId } from "../../contract/domain/Id.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { conflict } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { identityOf } from "../archives/format.ts"
import { IoError, listFolder, makeClosedFolder, orMissing, readText, removeTree } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { openRoot } from "../disk/safePath.ts"
import { isFolder } from "../files/changeBase.ts"
import { linesOf } from "../packed/lines.ts"
import { foreignOf, StoredBase, seal, unseal } from "./manifest.ts"
import { packFolder } from "./pack.ts"
import { readParts } from "./parts.ts"
import { type BackupTarget, baseId, manifestKey } from "./target.ts"

/** Objects that are looked at in a target at a time. */
const AT_ONCE = 4

/**
 * Returns the base of a server if only what differs from it is packed.
 * @param kind default: `written` where the files are a layer over their base, else `full`
 * @error FileRefused 409 it is unknown
 */
export const belowOf = Effect.fnUntraced(function* ({ layout }: Site, kind: BackupKind | undefined) {
  const [root] = layout.written
  if (kind === "full" || (kind === undefined && root === undefined)) return undefined
  const base = root === undefined ? layout.copied?.base : root.lower[0]
  if (base !== undefined && (yield* isFolder(base))) return { base, upper: root?.upper }
  if (kind === undefined) return undefined
  return yield* conflict(
    "/",
    "the base of the server is gone, so that its own files cannot be told apart; the kind full has all files",
    "Make a backup of the kind full, or reinstall the server."
  )
})

/** Returns whether a target has all objects of a base. */
const isThere = Effect.fnUntraced(function* (target: BackupTarget, { digest, index, parts }: StoredBase) {
  const keys = [manifestKey(baseId(digest)), ...[...parts, ...index].map(({ key }) => key)]
  const there = yield* Effect.forEach(keys, target.has, { concurrency: AT_ONCE })
  return !there.includes(false)
})

/** Returns whether the objects of a base are there, and its index has the entries that its digest says. */
const isWhole = Effect.fnUntraced(function* (target: BackupTarget, base: StoredBase) {
  if (foreignOf(base) !== undefined || !(yield* isThere(target, base))) return false
  const hash = createHash("sha256")
  yield* Stream.runForEach(linesOf(readParts(target, base.index)), (lines) =>
    Effect.sync(() => {
      for (const line of lines) hash.update(`${identityOf(line)}\n`)
    })
  )
  return hash.digest("hex") === base.digest
})

/** Returns the base that a target has, unless it is missing or damaged. */
const storedBase = Effect.fnUntraced(
  function* (target: BackupTarget, digest: string) {
    const found = yield* unseal(target, baseId(digest), StoredBase)
    if (Option.isNone(found) || found.value.digest !== digest) return undefined
    const { manifest_sha256: _, ...base } = found.value
    return (yield* isWhole(target, base)) ? base : undefined
  },
  Effect.catchIf(
    (error) => error._tag !== "IoError" || error.code === "DAMAGED",
    () => Effect.succeed(undefined)
  )
)

const encoded = (base: StoredBase) => JSON.stringify(base)

/** Fails if the objects of a base were removed while a backup of what lies above it was made. */
export const checkBase = Effect.fnUntraced(function* (target: BackupTarget, base: StoredBase) {
  if (yield* isThere(target, base)) return
  return yield* new IoError({
    code: "EBASE",
    message: "the base of the backup was removed from the target meanwhile",
    next: "Make the backup again."
  })
})

/** The folder of the digests of bases, beside the one of bases: a daemon that is started again does not read them anew. */
const DIGESTS = ".digests"

/** Remembers the digest of a base, whose folder never changes, and forgets those of removed ones. */
const noteDigest = Effect.fnUntraced(function* (folder: string, digest: string) {
  const notes = join(dirname(dirname(folder)), DIGESTS)
  yield* makeClosedFolder(notes)
  for (const name of yield* listFolder(notes))
    if (!(yield* isFolder(join(dirname(folder), name)))) yield* removeTree(join(notes, name))
  yield* writeAtomic(join(notes, basename(folder)), digest)
})

const notedDigest = (folder: string) =>
  readText(join(dirname(dirname(folder)), DIGESTS, basename(folder))).pipe(
    orMissing(""),
    Effect.map((text) => /^[0-9a-f]{64}$/.exec(text)?.[0])
  )

/**
 * Returns a function that stores the base of a server, unless the target has it. Its manifest is written in each case: a base
 * that a backup needs soon is new. @param rate bytes a second that are read; 0: no limit
 */
export const makeBases = (rate: number) =>
  Effect.fnUntraced(function* (target: BackupTarget, folder: string, onBytes: (bytes: number) => void) {
    const { fd } = yield* openRoot(folder)
    const options = { fd, shared: [], own: [], exclude: [], most: Number.POSITIVE_INFINITY, onBytes, rate }
    const noted = yield* notedDigest(folder)
    const digest = noted ?? (yield* packFolder(target, options)).identity
    if (noted === undefined) yield* noteDigest(folder, digest)
    const id = baseId(digest)
    const known = yield* storedBase(target, digest)
    if (known !== undefined) {
      yield* seal(target, id, encoded(known))
      return known
    }
    // Another node may store the same base at the same time: its objects have other names.
    const { archive, bytes, frames, identity, index } = yield* packFolder(target, {
      ...options,
      prefix: `${id}/${serverId(idBytes(16))}-`
    })
    if (identity !== digest)
      return yield* new IoError({
        code: "EBASE",
        message: "the base of the server changed while it was read"
      })
    const base: StoredBase = { digest, bytes, parts: archive.parts, frames, index: index.parts }
    yield* seal(target, id, encoded(base))
    return base
  }, Effect.scoped)
