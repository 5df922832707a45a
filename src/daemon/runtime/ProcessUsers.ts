/** The users of plain processes: a uid and equal gid per server and per software (spec 9.7). */

import { join } from "node:path"
import { Effect, Schema, Semaphore } from "effect"
import { type IoError, orMissing, orWarn, readText } from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import { pidsByUid } from "../host/procfs.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"
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
/** The pause before a release, in ms: a pass reads all processes of the host, and releases of a moment share one. */
const SHARED_PASS = 1000

/** The live processes of uids, of which a warning is logged once. */
const makeLiveness = (node: string) => {
  let found: ReadonlyMap<number, ReadonlyArray<number>> = new Map()
  let readAt = Number.NEGATIVE_INFINITY
  const warned = new Set<number>()

  /** Returns the live processes of a uid at a time, or later. */
  const pidsOf = Effect.fnUntraced(function* (uid: number, since: number) {
    if (readAt < since) {
      const begun = performance.now()
      found = yield* pidsByUid
      readAt = begun
    }
    return found.get(uid) ?? []
  })
  /** Whether a uid has live processes at a time, or later; if so, it `is not` assigned or released. */
  const isLive = Effect.fnUntraced(function* (uid: number, since: number, isNot: string) {
    const pids = yield* pidsOf(uid, since)
    if (pids.length === 0) return warned.delete(uid) && false
    if (!warned.has(uid)) {
      yield* Effect.logWarning(`uid ${uid} ${isNot}: it has live processes`).pipe(
        Effect.annotateLogs({ node, uid, pids: pids.join(" ") })
      )
    }
    warned.add(uid)
    return true
  })
  return { pidsOf, isLive }
}

/** Opens `users.json`. @error IoError | SchemaError it cannot be read, and its uids could be assigned twice */
const openUsersFile = Effect.fnUntraced(function* (dataDir: string, { first, last }: UidRange) {
  const path = join(dataDir, "users.json")
  const kept = yield* readText(path).pipe(orMissing(undefined))
  let file: UsersFile = kept === undefined ? { format: 1, software: {} } : yield* decodeUsersFile(kept)
  const ahead = Math.min(MAX_AHEAD, Math.floor((last - first) / MAX_AHEAD))
  /** The start of the next search, unless it is still in the file. */
  let start: number | undefined

  const save = Effect.fnUntraced(function* (changed: UsersFile) {
    yield* writeAtomic(path, `${JSON.stringify(changed)}\n`)
    file = changed
  })
  return {
    software: () => file.software,
    setSoftware: (id: string, uid: number) =>
      Effect.suspend(() => save({ ...file, software: { ...file.software, [id]: uid } })),
    /** The uids in the order of a search, the one after the last found uid first. */
    searchOrder: function* () {
      const next = start ?? file.next ?? first
      const from = next >= first && next <= last ? next : first
      for (let uid = from; uid <= last; uid++) yield uid
      for (let uid = first; uid < from; uid++) yield uid
    },
    setFound: Effect.fnUntraced(function* (uid: number) {
      const { next = first } = file
      if (uid >= next || uid < next - 1 - ahead) yield* save({ ...file, next: uid + 1 + ahead })
      start = uid + 1
    })
  }
})

/** The time after which a range that was exhausted by other nodes of the host is tried again, in ms. */
const RETRY_AFTER = 60_000

const SOFTWARE = "software:"
const softwareName = (software: string) => `${SOFTWARE}${software}`
const userOf = (uid: number): RunUser => ({ uid, gid: uid, own: true })

const failed = (error: IoError) =>
  new LaunchFailed({ message: `uids cannot be assigned: ${error.message}`, code: error.code })

/** Opens the uids of a node's servers and software. @error IoError | SchemaError see {@link openUsersFile} */
export const openProcessUsers = Effect.fnUntraced(function* (options: ProcessUsersOptions) {
  const { dataDir, node, range } = options
  const claims = yield* openUidClaims(node, dataDir, options.claimsDir ?? CLAIMS)
  const previous = new Map(claims.previous)
  const file = yield* openUsersFile(dataDir, range)
  const { isLive, pidsOf } = makeLiveness(node)
  const lock = yield* Semaphore.make(1)
  const softwareLock = yield* Semaphore.make(1)
  const locked = <A, E>(effect: Effect.Effect<A, E>) => Effect.uninterruptible(lock.withPermit(effect))
  const byName = new Map<string, number>()
  const byUid = new Map<number, string>()
  /** The names whose uids are released once they have no live process. */
  const lingering = new Set<string>()
  /** The time of the last assignment without a free uid. */
  let exhaustedAt = Number.NEGATIVE_INFINITY

  const record = (name: string, uid: number) => {
    byName.set(name, uid)
    byUid.set(uid, name)
  }

  /** Requires the lock. */
  const releaseUid = Effect.fnUntraced(function* (name: string, since: number) {
    const uid = byName.get(name)
    if (uid === undefined) return
    lingering.add(name)
    if (yield* isLive(uid, since, `of ${name} is not released`)) return
    lingering.delete(name)
    byName.delete(name)
    byUid.delete(uid)
    previous.delete(uid)
    exhaustedAt = Number.NEGATIVE_INFINITY
    yield* orWarn(claims.release(uid))
  })

  /** Whether another user has a uid: of this node, of another node, or one that this node does not know. */
  const isInUse = Effect.fnUntraced(function* (uid: number, since: number) {
    if (byUid.has(uid) || (yield* claims.isForeign(uid))) return true
    const isMaybeLive = (yield* pidsOf(uid, since - MAX_PASS_AGE)).length > 0
    return isMaybeLive && (yield* isLive(uid, since, "is not assigned"))
  })

  /** Requires the lock. */
  const assignUid = Effect.fnUntraced(function* (name: string, kept: number | undefined) {
    lingering.delete(name)
    for (const ended of lingering) yield* releaseUid(ended, performance.now() - MAX_PASS_AGE)
    const known = byName.get(name)
    if (known !== undefined) return userOf(known)
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
    for (const uid of file.searchOrder()) {
      if ((yield* isInUse(uid, begun)) || !(yield* claims.claim(uid, name))) continue
      record(name, uid)
      yield* file.setFound(uid)
      return userOf(uid)
    }
    exhaustedAt = performance.now()
    return yield* new LaunchFailed({
      message: `every uid of MUSTER_PROCESS_UIDS (${range.first}-${range.last}) is in use`,
      next: "set MUSTER_PROCESS_UIDS to a larger range, or remove servers"
    })
  })

  /** Returns the kept uid unless taken, else the next free one: files in `/tmp` may outlive a server. */
  const assign = (name: string, kept?: number) =>
    locked(Effect.catchTag(assignUid(name, kept), "IoError", failed))

  const softwareUser = Effect.fnUntraced(function* (id: string) {
    const kept = file.software()[id]
    const user = yield* assign(softwareName(id), kept)
    if (kept !== user.uid) {
      yield* locked(Effect.mapError(file.setSoftware(id, user.uid), failed))
    }
    return user
  }, softwareLock.withPermit)

  for (const [id, uid] of Object.entries(file.software())) yield* orWarn(assign(softwareName(id), uid))

  return {
    assign,
    softwareUser,
    /** Whether a name without a uid would get none. */
    isExhausted: () => {
      const { first, last } = range
      const used = [...byUid.keys()].filter((uid) => uid >= first && uid <= last)
      return used.length > last - first || performance.now() - exhaustedAt < RETRY_AFTER
    },
    reserve: (name: string, uid: number) =>
      locked(
        Effect.gen(function* () {
          if (byUid.has(uid) || byName.has(name)) return
          // The files of the server have the uid without a claim, too: no other server may get it.
          const claimed = yield* Effect.catch(claims.claim(uid, name), (error) =>
            Effect.as(Effect.logWarning(failed(error).message), true)
          )
          if (claimed) record(name, uid)
        })
      ),
    rename: (name: string, to: string) =>
      locked(
        Effect.sync(() => {
          const uid = byName.get(name)
          if (uid === undefined) return
          byName.delete(name)
          record(to, uid)
        })
      ),
    release: (name: string) =>
      Effect.suspend(() => {
        const since = performance.now()
        return Effect.andThen(
          Effect.sleep(SHARED_PASS),
          lock.withPermit(Effect.suspend(() => releaseUid(name, since)))
        )
      }).pipe(Effect.uninterruptible),
    /** Returns owners of uids that may have processes of the last run of this node, without a server in this run. */
    formerOwners: (): ReadonlyArray<string> =>
      [...previous].flatMap(([uid, name]) => (name.startsWith(SOFTWARE) || !byUid.has(uid) ? [name] : [])),
    /** Returns the uid that a name has now, or had in the last run of this node unless another name has it now. */
    uidOf: (name: string): number | undefined =>
      byName.get(name) ?? [...previous].find(([uid, had]) => had === name && !byUid.has(uid))?.[0],
    /** Returns the server or software that has a uid now, or had it in the last run of this node. */
    nameOf: (uid: number): string | undefined => byUid.get(uid) ?? previous.get(uid)
  }
})

/** The uids of this node's servers and software. */
export type ProcessUsers = Effect.Success<ReturnType<typeof openProcessUsers>>
