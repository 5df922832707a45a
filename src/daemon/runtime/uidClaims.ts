/**
 * The claims, a file per uid, by which daemons of a host never share a uid. Calls are synchronous on tmpfs: threads
 * take ten times as long.
 */

import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import { join } from "node:path"
import { Effect, Option, Schema } from "effect"
import {
  IoError,
  ioSync,
  lstat,
  lstatSync,
  makeFolder,
  makePassage,
  orMissing,
  orOn,
  orWarn
} from "../disk/fsio.ts"

/** The folder in which all daemons of a host claim their uids. Empty after a boot, when no server runs. */
export const CLAIMS = "/run/muster/uids"

const Claim = Schema.fromJsonString(
  Schema.Struct({ node: Schema.String, data_dir: Schema.String, name: Schema.String })
)
type Claim = typeof Claim.Type
const decodeClaim = Schema.decodeUnknownOption(Claim)

/** Creates a file; false if there is one. */
const create = (what: string, run: () => void) =>
  ioSync(what, run).pipe(Effect.as(true), orOn(false, "EEXIST"))

const unlink = (path: string) =>
  ioSync(`remove ${path}`, () => fs.unlinkSync(path)).pipe(orMissing(undefined))

/** Returns the text of a file, if there is one; a missing one costs no exception. */
const readIfThere = (path: string) => (fs.existsSync(path) ? fs.readFileSync(path, "utf8") : undefined)

/** Makes the folder of the claims, which servers cannot list whatever the umask; a link in its place is an error. */
const makeShared = Effect.fnUntraced(function* (path: string) {
  if ((yield* lstatSync(path))?.isSymbolicLink()) {
    return yield* new IoError({ code: "ELOOP", message: `${path} is a link` })
  }
  yield* makePassage(path)
})

/** Opens the claims of a `node`, which names its data folder, too. Calls must not overlap. */
export const openUidClaims = Effect.fnUntraced(function* (node: string, dataDir: string, sharedDir: string) {
  const claimsDir = yield* makeShared(sharedDir).pipe(
    Effect.as(sharedDir),
    Effect.catch(({ message }) => {
      const own = join(dataDir, "uids")
      const warning = `uids cannot be claimed on this host: ${message}; set a different MUSTER_PROCESS_UIDS for each daemon`
      return Effect.andThen(Effect.logWarning(warning), Effect.as(makeFolder(own), own))
    })
  )
  const pathOf = (uid: number) => join(claimsDir, String(uid))

  const read = (uid: number) =>
    Effect.map(
      ioSync(`read ${pathOf(uid)}`, () => readIfThere(pathOf(uid))).pipe(orMissing(undefined)),
      (text) =>
        text === undefined ? undefined : Option.getOrElse(decodeClaim(text), () => "unreadable" as const)
    )
  type Found = Effect.Success<ReturnType<typeof read>>

  const isOwn = (found: Found) => typeof found === "object" && found.node === node
  /** Whether another node has a claim: its data folder exists, or the claim cannot be read. */
  const isForeign = (found: Found): Effect.Effect<boolean, IoError> =>
    typeof found !== "object" || isOwn(found)
      ? Effect.succeed(found === "unreadable")
      : Effect.map(lstat(found.data_dir), (folder) => folder !== undefined)

  /**
   * Removes the claim of a node whose data folder is gone. If a daemon is killed with the lock, the uid stays unused
   * until the next boot.
   */
  const removeLeft = Effect.fnUntraced(function* (uid: number) {
    const lock = `${pathOf(uid)}.lock`
    if (!(yield* create(`lock uid ${uid}`, () => fs.writeFileSync(lock, "", { flag: "wx" })))) return
    yield* Effect.gen(function* () {
      const found = yield* read(uid)
      if (found !== undefined && !isOwn(found) && !(yield* isForeign(found))) yield* unlink(pathOf(uid))
    }).pipe(Effect.ensuring(Effect.ignore(unlink(lock))))
  }, orWarn)

  /** One look at each data folder: a node may have a thousand claims. */
  const known = new Map<string, boolean>()
  const isOthers = Effect.fnUntraced(function* (found: Claim) {
    const there = known.get(found.data_dir) ?? (yield* isForeign(found))
    known.set(found.data_dir, there)
    return there
  })
  const previous = new Map<number, string>()
  for (const file of yield* ioSync(`read ${claimsDir}`, () => fs.readdirSync(claimsDir))) {
    const found = /^\d+$/.test(file) ? yield* read(Number(file)) : undefined
    if (typeof found !== "object") continue
    if (isOwn(found)) previous.set(Number(file), found.name)
    else if (!(yield* isOthers(found))) yield* removeLeft(Number(file))
  }

  return {
    isForeign: (uid: number) => Effect.flatMap(read(uid), isForeign),
    /** Claims a uid on this host; false if another node has it, or had it when this one was opened. */
    claim: Effect.fnUntraced(function* (uid: number, name: string) {
      const found = yield* read(uid)
      if (found !== undefined) {
        // Other daemons do not remove it: the data folder of this node exists.
        if (found === "unreadable" || !isOwn(found)) return false
        if (found.name === name) return true
      }
      // A complete claim is put in place, because another daemon may read it at any time.
      const aside = join(claimsDir, `${uid}.${randomUUID()}`)
      const text = JSON.stringify({ node, data_dir: dataDir, name } satisfies Claim)
      const put =
        found === undefined
          ? create(`claim uid ${uid}`, () => fs.linkSync(aside, pathOf(uid)))
          : Effect.as(
              ioSync(`claim uid ${uid}`, () => fs.renameSync(aside, pathOf(uid))),
              true
            )
      return yield* ioSync(`claim uid ${uid}`, () =>
        fs.writeFileSync(aside, text, { flag: "wx", mode: 0o600 })
      ).pipe(Effect.andThen(put), Effect.ensuring(Effect.ignore(unlink(aside))))
    }),
    release: Effect.fnUntraced(function* (uid: number) {
      if (isOwn(yield* read(uid))) yield* unlink(pathOf(uid))
    }),
    /** The claims of the last run of this node, by uid. */
    previous
  }
})
