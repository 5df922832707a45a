/** The users of plain processes: a uid and equal gid per server and per software (spec 9.7). */

import { join } from "node:path"
import { Effect, Schema, Semaphore } from "effect"
import { type IoError, orMissing, orWarn, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { pidsByUid } from "../host/procfs.ts"
import { LaunchFailed, type RuntimeUsers, type RunUser } from "./Runtime.ts"
import { CLAIMS, openUidClaims } from "./uidClaims.ts"

export interface UidRange {
  readonly first: number
  readonly last: number
}

export interface ProcessUsersOptions {
  readonly node: string
  /** The folder of the node. Its `users.json` has the uids of software and the start of the next search. */
  readonly dataDir: string
  readonly range: UidRange
  /** The folder in which all daemons of this host claim their uids. Default {@link CLAIMS}. */
  readonly claimsDir?: string
}

/** The uids of this node's servers and software. */
export interface ProcessUsers extends RuntimeUsers {
  /** Returns the kept uid unless taken, else the next free one: files in `/tmp` may outlive a server. */
  assign(name: string, kept?: number): Effect.Effect<RunUser, LaunchFailed>
  softwareUser(software: string): Effect.Effect<RunUser, LaunchFailed>
  /** Whether a name without a uid would get none. */
  readonly isExhausted: () => boolean
  /** The owners of uids that may have processes of the last run of this node, without a server in this run. */
  readonly formerOwners: () => ReadonlyArray<string>
  readonly uidOf: (name: string) => number | undefined
  /** Returns the server or software that has a uid now, or had it in the last run of this node. */
  readonly nameOf: (uid: number) => string | undefined
}

const UsersFile = Schema.fromJsonString(
  Schema.Struct({
    format: Schema.Literal(1),
    software: Schema.Record(Schema.String, Schema.Int),
    /** The start of the search for a free uid, once there was a search. */
    next: Schema.optionalKey(Schema.Int)
  })
)
type UsersFile = typeof UsersFile.Type
const decodeUsersFile = Schema.decodeUnknownEffect(UsersFile)

/** The most uids that users.json is ahead of the search, so that not every new server writes it. */
const MAX_AHEAD = 64

const MAX_PASS_AGE = 1000
/** The pause before a release, in ms: releases of a moment share a pass. */
const SHARED_PASS = 100

/** Returns the live processes of a uid at a time, or later. */
const makePidsOf = () => {
  let found: ReadonlyMap<number, ReadonlyArray<number>> = new Map()
  let readAt = Number.NEGATIVE_INFINITY
  return Effect.fnUntraced(function* (uid: number, since: number): Effect.fn.Return<ReadonlyArray<number>> {
    if (readAt < since) {
      const begun = performance.now()
      found = yield* pidsByUid
      readAt = begun
    }
    return found.get(uid) ?? []
  })
}

/** The time after which a range that was exhausted by other nodes of the host is tried again, in ms. */
const RETRY_AFTER = 60_000

const SOFTWARE = "software:"
const softwareName = (software: string) => `${SOFTWARE}${software}`
const userOf = (uid: number): RunUser => ({ uid, gid: uid, own: true })

/** @error IoError | SchemaError `users.json` cannot be read, and its uids could be assigned twice */
export const openProcessUsers = Effect.fnUntraced(function* (options: ProcessUsersOptions) {
  const { dataDir, node, range } = options
  const claims = yield* openUidClaims(node, dataDir, options.claimsDir ?? CLAIMS)
  const previous = new Map(claims.previous)
  const path = join(dataDir, "users.json")
  const lock = yield* Semaphore.make(1)
  const softwareLock = yield* Semaphore.make(1)
  const byName = new Map<string, number>()
  const byUid = new Map<number, string>()
  const ahead = Math.min(MAX_AHEAD, Math.floor((range.last - range.first) / MAX_AHEAD))
  const pidsOf = makePidsOf()
  const lingering = new Set<string>()
  /** Uids with live processes that an assignment has met, and warned about. */
  const met = new Set<number>()
  /** The time of the last assignment without a free uid. */
  let exhaustedAt = Number.NEGATIVE_INFINITY
  let file: UsersFile = { format: 1, software: {} }
  /** The start of the next search, unless it is still in the file. */
  let start: number | undefined

  /** Returns the uid that a name had in the last run of this node, unless another name has it now. */
  const previousUid = (name: string) => {
    for (const [uid, previousName] of previous) if (previousName === name && !byUid.has(uid)) return uid
    return undefined
  }

  const record = (name: string, uid: number) => {
    byName.set(name, uid)
    byUid.set(uid, name)
  }

  const failed = (error: IoError) =>
    new LaunchFailed({ message: `uids cannot be assigned: ${error.message}`, code: error.code })

  /** Requires `lock`. */
  const save = Effect.fnUntraced(function* (changed: UsersFile) {
    yield* writeAtomic(path, `${JSON.stringify(changed)}\n`)
    file = changed
  })

  const searchOrder = function* () {
    const { first, last } = range
    const next = start ?? file.next ?? first
    const from = next >= first && next <= last ? next : first
    for (let uid = from; uid <= last; uid++) yield uid
    for (let uid = first; uid < from; uid++) yield uid
  }

  const warnOfLive = (uid: number, pids: ReadonlyArray<number>, message: string) =>
    Effect.logWarning(message).pipe(Effect.annotateLogs({ node, uid, pids: pids.join(" ") }))

  /** Whether a uid has live processes of a user that this node does not know, at the start of an assignment or later. */
  const isInUse = Effect.fnUntraced(function* (uid: number, since: number) {
    const isMaybeLive = (yield* pidsOf(uid, since - MAX_PASS_AGE)).length > 0
    const pids = isMaybeLive ? yield* pidsOf(uid, since) : []
    if (pids.length === 0) return met.delete(uid) && false
    if (!met.has(uid)) yield* warnOfLive(uid, pids, `uid ${uid} is not assigned: it has live processes`)
    met.add(uid)
    return true
  })

  /** Requires `lock`. */
  const releaseUid = Effect.fnUntraced(function* (name: string, since: number) {
    const uid = byName.get(name)
    if (uid === undefined) return
    const pids = yield* pidsOf(uid, since)
    if (pids.length > 0) {
      if (!lingering.has(name))
        yield* warnOfLive(uid, pids, `uid ${uid} of ${name} is not released: it has live processes`)
      lingering.add(name)
      return
    }
    lingering.delete(name)
    byName.delete(name)
    byUid.delete(uid)
    previous.delete(uid)
    exhaustedAt = Number.NEGATIVE_INFINITY
    yield* orWarn(claims.release(uid))
  })

  const assignUid = Effect.fnUntraced(function* (name: string, kept: number | undefined) {
    lingering.delete(name)
    for (const ended of lingering) yield* releaseUid(ended, performance.now() - MAX_PASS_AGE)
    const previousName = byName.get(name)
    if (previousName !== undefined) return userOf(previousName)
    if (kept !== undefined && !byUid.has(kept)) {
      if (yield* claims.claim(kept, name)) {
        record(name, kept)
        return userOf(kept)
      }
      yield* Effect.logWarning(
        `uid ${kept} of ${name} is in use by another node of this host, another uid is assigned; set a different MUSTER_PROCESS_UIDS for each node`
      )
    }
    const begun = performance.now()
    for (const uid of searchOrder()) {
      if (byUid.has(uid) || (yield* claims.isForeign(uid)) || (yield* isInUse(uid, begun))) continue
      if (!(yield* claims.claim(uid, name))) continue
      record(name, uid)
      const { next = range.first } = file
      if (uid >= next || uid < next - 1 - ahead) yield* save({ ...file, next: uid + 1 + ahead })
      start = uid + 1
      return userOf(uid)
    }
    exhaustedAt = performance.now()
    return yield* new LaunchFailed({
      message: `every uid of MUSTER_PROCESS_UIDS (${range.first}-${range.last}) is in use`,
      next: "set MUSTER_PROCESS_UIDS to a larger range, or remove servers"
    })
  })

  const assign = (name: string, kept?: number) =>
    assignUid(name, kept).pipe(Effect.catchTag("IoError", failed), lock.withPermit, Effect.uninterruptible)

  const softwareUser = Effect.fnUntraced(function* (id: string) {
    const user = yield* assign(softwareName(id), file.software[id])
    if (file.software[id] === user.uid) return user
    yield* Effect.suspend(() => save({ ...file, software: { ...file.software, [id]: user.uid } })).pipe(
      Effect.mapError(failed),
      lock.withPermit,
      Effect.uninterruptible
    )
    return user
  })

  const kept = yield* readText(path).pipe(orMissing(undefined))
  if (kept !== undefined) file = yield* decodeUsersFile(kept)
  for (const [id, uid] of Object.entries(file.software)) {
    yield* orWarn(assign(softwareName(id), uid))
  }

  const users: ProcessUsers = {
    assign,
    isExhausted: () => {
      const { first, last } = range
      const used = [...byUid.keys()].filter((uid) => uid >= first && uid <= last)
      return used.length > last - first || performance.now() - exhaustedAt < RETRY_AFTER
    },
    softwareUser: (id) => softwareLock.withPermit(softwareUser(id)),
    reserve: (name, uid) =>
      Effect.gen(function* () {
        if (!byUid.has(uid) && !byName.has(name) && (yield* claims.claim(uid, name))) record(name, uid)
      }).pipe(
        // The files of the server have the uid without a claim, too: no other server may get it.
        Effect.catch((error) =>
          Effect.andThen(
            Effect.sync(() => record(name, uid)),
            Effect.logWarning(failed(error).message)
          )
        ),
        lock.withPermit,
        Effect.uninterruptible
      ),
    rename: (name, to) =>
      Effect.sync(() => {
        const uid = byName.get(name)
        if (uid === undefined) return
        byName.delete(name)
        record(to, uid)
      }).pipe(lock.withPermit, Effect.uninterruptible),
    release: (name) =>
      Effect.suspend(() => {
        const since = performance.now()
        const release = Effect.suspend(() => releaseUid(name, since))
        return Effect.andThen(Effect.sleep(SHARED_PASS), lock.withPermit(release))
      }).pipe(Effect.uninterruptible),
    formerOwners: () =>
      [...previous].flatMap(([uid, name]) => (name.startsWith(SOFTWARE) || !byUid.has(uid) ? [name] : [])),
    uidOf: (name) => byName.get(name) ?? previousUid(name),
    nameOf: (uid) => byUid.get(uid) ?? previous.get(uid)
  }
  return users
})
