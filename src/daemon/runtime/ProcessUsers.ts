/** Users of plain processes: one uid, which is the gid too, for each server and for each software (life.md). */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect, Option, Schema, Semaphore } from "effect"
import { type IoError, io, lstat, makeFolder, orMissing, readText, writeAtomic } from "../disk/fsio.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"

/** The first and the last uid that a node may give. */
export interface UidRange {
  readonly first: number
  readonly last: number
}

export interface ProcessUsersOptions {
  /** Identity of the node and its data folder. */
  readonly node: string
  /** Folder of the node: `users.json` in it keeps the uids of software, and the uid at which the next search begins. */
  readonly data_dir: string
  readonly range: UidRange
  /** Folder in which every daemon of this machine claims the uids that it gives. Default {@link CLAIMS}. */
  readonly claims_dir?: string
}

/** The uids of this node's servers and software. */
export interface ProcessUsers {
  /**
   * The user of a server or software, by name. A name without a uid gets the first free one after the uid given last, so
   * that a released uid rests for as long as the range allows: files in `/tmp` and System V objects of a removed server
   * may outlive the server. `kept`: the uid that the server had before, as long as no other has it now.
   */
  take(name: string, kept?: number): Effect.Effect<RunUser, LaunchFailed>
  /** The user of a software: it stays for good. */
  ofSoftware(software: string): Effect.Effect<RunUser, LaunchFailed>
  /** Keeps a uid from being given to another. */
  hold(name: string, uid: number): Effect.Effect<void>
  /** The server has gone with all its files. */
  release(name: string): Effect.Effect<void>
  readonly uidOf: (name: string) => number | undefined
  /** Name of the server or software that has a uid now, or had it when this node last ran. */
  readonly nameOf: (uid: number) => string | undefined
}

/** Two daemons of one machine never give the same uid. Empty after a restart of the machine, when nothing runs. */
export const CLAIMS = "/run/muster/uids"

const Claim = Schema.fromJsonString(
  Schema.Struct({ node: Schema.String, data_dir: Schema.String, name: Schema.String })
)
type Claim = typeof Claim.Type
const decodeClaim = Schema.decodeUnknownOption(Claim)

const UsersFile = Schema.fromJsonString(
  Schema.Struct({
    format: Schema.Literal(1),
    software: Schema.Record(Schema.String, Schema.Int),
    /** The search for a free uid begins here. Absent in files of older versions. */
    next: Schema.optionalKey(Schema.Int)
  })
)
type UsersFile = typeof UsersFile.Type
const decodeUsersFile = Schema.decodeUnknownEffect(UsersFile)

const softwareName = (software: string) => `software:${software}`
const userOf = (uid: number): RunUser => ({ uid, gid: uid, own: true })

/** Opens the users of a node. Fails when `users.json` cannot be read: its uids would be given twice. */
export const openProcessUsers = Effect.fnUntraced(function* (options: ProcessUsersOptions) {
  const { data_dir, node, range } = options
  const shared_dir = options.claims_dir ?? CLAIMS
  const claims_dir = yield* makeFolder(shared_dir).pipe(
    Effect.as(shared_dir),
    Effect.catch(({ message }) => {
      const own = join(data_dir, "uids")
      const warning = `uids are not claimed on this machine, so give each daemon a MUSTER_PROCESS_UIDS of its own: ${message}`
      return Effect.andThen(Effect.logWarning(warning), Effect.as(makeFolder(own), own))
    })
  )
  const path = join(data_dir, "users.json")
  const turn = yield* Semaphore.make(1)
  const turnOfSoftware = yield* Semaphore.make(1)
  const byName = new Map<string, number>()
  const byUid = new Map<number, string>()
  const earlier = new Map<number, string>()
  let file: UsersFile = { format: 1, software: {} }

  const claimPath = (uid: number) => join(claims_dir, String(uid))
  const readClaim = (uid: number) =>
    Effect.map(readText(claimPath(uid)).pipe(orMissing("")), (text) =>
      Option.getOrUndefined(decodeClaim(text))
    )

  /** Whether a claim counts: another node's does for as long as its data folder is there. */
  const counts = (claim: Claim | undefined): Effect.Effect<boolean, IoError> =>
    claim === undefined || claim.node === node
      ? Effect.succeed(false)
      : Effect.map(lstat(claim.data_dir), (found) => found !== undefined)

  const writeClaim = (uid: number, name: string) => {
    const text = JSON.stringify({ node, data_dir, name } satisfies Claim)
    return io(`claim uid ${uid}`, () => fs.writeFile(claimPath(uid), text, { flag: "wx", mode: 0o600 })).pipe(
      Effect.as(true),
      Effect.catchIf(
        ({ code }) => code === "EEXIST",
        () => Effect.succeed(false)
      )
    )
  }

  /** Claims a uid on this machine; false where another node has it. */
  const claim = Effect.fnUntraced(function* (uid: number, name: string) {
    if (yield* writeClaim(uid, name)) return true
    if (yield* counts(yield* readClaim(uid))) return false
    yield* io(`give up uid ${uid}`, () => fs.unlink(claimPath(uid))).pipe(orMissing(undefined))
    return yield* writeClaim(uid, name)
  })

  /** The uid that a name had when this node last ran, where no other name has it now. */
  const earlierOf = (name: string) => {
    for (const [uid, had] of earlier) if (had === name && !byUid.has(uid)) return uid
    return undefined
  }

  const note = (name: string, uid: number) => {
    byName.set(name, uid)
    byUid.set(uid, name)
  }

  const failed = (error: IoError) =>
    new LaunchFailed({ message: `uids cannot be given: ${error.message}`, code: error.code })

  /** Runs within `turn`. */
  const save = Effect.fnUntraced(function* (changed: UsersFile) {
    yield* writeAtomic(path, `${JSON.stringify(changed)}\n`)
    file = changed
  })

  /** The uids of the range in the order in which they are tried. */
  const inTurn = function* () {
    const { first, last } = range
    const { next = first } = file
    const start = next >= first && next <= last ? next : first
    for (let uid = start; uid <= last; uid++) yield uid
    for (let uid = first; uid < start; uid++) yield uid
  }

  const takeOne = Effect.fnUntraced(function* (name: string, kept: number | undefined) {
    const had = byName.get(name)
    if (had !== undefined) return userOf(had)
    if (kept !== undefined && !byUid.has(kept)) {
      if (yield* claim(kept, name)) {
        note(name, kept)
        return userOf(kept)
      }
      yield* Effect.logWarning(
        `uid ${kept} of ${name} is in use by another node of this machine: ${name} gets another; give each node a MUSTER_PROCESS_UIDS of its own`
      )
    }
    for (const uid of inTurn()) {
      if (byUid.has(uid) || !(yield* claim(uid, name))) continue
      note(name, uid)
      yield* save({ ...file, next: uid + 1 })
      return userOf(uid)
    }
    return yield* new LaunchFailed({
      message: `every uid of MUSTER_PROCESS_UIDS (${range.first}-${range.last}) is in use`,
      next: "set MUSTER_PROCESS_UIDS to a larger range, or remove servers"
    })
  })

  const take = (name: string, kept?: number) =>
    takeOne(name, kept).pipe(Effect.catchTag("IoError", failed), turn.withPermit, Effect.uninterruptible)

  const ofSoftware = Effect.fnUntraced(function* (id: string) {
    const user = yield* take(softwareName(id), file.software[id])
    if (file.software[id] === user.uid) return user
    yield* Effect.suspend(() => save({ ...file, software: { ...file.software, [id]: user.uid } })).pipe(
      Effect.mapError(failed),
      turn.withPermit,
      Effect.uninterruptible
    )
    return user
  })

  for (const name of yield* io(`read ${claims_dir}`, () => fs.readdir(claims_dir))) {
    const found = /^\d+$/.test(name) ? yield* readClaim(Number(name)) : undefined
    if (found?.node === node) earlier.set(Number(name), found.name)
  }
  const kept = yield* readText(path).pipe(orMissing(undefined))
  if (kept !== undefined) file = yield* decodeUsersFile(kept)
  for (const [id, uid] of Object.entries(file.software)) {
    yield* Effect.catch(take(softwareName(id), uid), (error) => Effect.logWarning(error.message))
  }

  const users: ProcessUsers = {
    take,
    ofSoftware: (id) => turnOfSoftware.withPermit(ofSoftware(id)),
    hold: (name, uid) =>
      Effect.gen(function* () {
        if (!byUid.has(uid) && !byName.has(name) && (yield* claim(uid, name))) note(name, uid)
      }).pipe(
        Effect.catch((error) => Effect.logWarning(failed(error).message)),
        turn.withPermit,
        Effect.uninterruptible
      ),
    release: (name) =>
      Effect.gen(function* () {
        const uid = byName.get(name)
        if (uid === undefined) return
        byName.delete(name)
        byUid.delete(uid)
        earlier.delete(uid)
        yield* io(`give up uid ${uid}`, () => fs.unlink(claimPath(uid))).pipe(
          orMissing(undefined),
          Effect.catch((error) => Effect.logWarning(error.message))
        )
      }).pipe(turn.withPermit, Effect.uninterruptible),
    uidOf: (name) => byName.get(name) ?? earlierOf(name),
    nameOf: (uid) => byUid.get(uid) ?? earlier.get(uid)
  }
  return users
})
