/**
 * Servers that this node had and that the control plane does not know, or knows on another node: their folders are kept
 * aside, for people to look at, and nothing of them is ever removed here.
 *
 *     lost/<server id>[-n]        its folder as it was; `files` is what it has written
 *     lost/<server id>[-n].json   what it was, and why it is here
 */
import { dirname, join } from "node:path"
import { Clock, Effect, Schema } from "effect"
import { Allocations } from "../../domain/Allocation.ts"
import { ServerDefinition } from "../../domain/ServerDefinition.ts"
import {
  type IoError,
  listFolder,
  lstat,
  makeClosedFolder,
  orMissing,
  readText,
  rename,
  syncFolder,
  writeAtomic
} from "../disk/fsio.ts"
import { mergeOwnFiles } from "../files/ownFiles.ts"
import { generationsDir, readTreeRecord, TREE } from "../files/treeRecord.ts"
import { FOLDERS } from "../host/dataFolder.ts"
import type { ServerState } from "../state/ServerFile.ts"

/**
 * - `unknown`   the control plane's database has no record of it
 * - `elsewhere` by the database it is on `node_id`
 * - `moved`     it is on another node, and was in use here nevertheless
 */
export type Departure =
  | { readonly why: "unknown" | "moved" }
  | { readonly why: "elsewhere"; readonly node_id: string }

const Note = Schema.Struct({
  format: Schema.Literal(1),
  server_id: Schema.String,
  why: Schema.Literals(["unknown", "elsewhere", "moved"]),
  /** Where it is by the database. */
  node_id: Schema.optionalKey(Schema.String),
  /** RFC 3339 UTC. */
  at: Schema.String,
  /** Base folder that lay below the files, in the node's folder; absent: they have it in them. */
  base: Schema.optionalKey(Schema.String),
  allocations: Allocations,
  definition: ServerDefinition
})
type Note = typeof Note.Type

const NoteJson = Schema.fromJsonString(Note)
const decode = Schema.decodeUnknownEffect(NoteJson)
const encode = Schema.encodeUnknownEffect(Note)

/** The note while it is not sure yet that all is in its place. */
const UNFINISHED = "lost.json"

export interface OrphanedServersOptions {
  /** Where they are kept. */
  readonly lost_dir: string
  /** Where they are kept that are on another file system than that; see {@link besideServers}. */
  readonly near_dir: string
}

/** A folder for lost servers that is on the file system of the servers. */
export const besideServers = (servers_dir: string): string => join(servers_dir, ".lost")

/** Whether the files of a server are worth keeping: it is saved, and was installed once. */
export const isKept = ({ held, install, spec, work }: ServerState, { why }: Departure): boolean => {
  if (!spec.definition.save || work === "install") return false
  // What was given away is complete where it has gone; what is not complete here was never used.
  return why !== "moved" || (held !== true && install.phase === "ready")
}

const because = ({ node_id, server_id, why }: Pick<Note, "node_id" | "server_id" | "why">): string => {
  switch (why) {
    case "unknown":
      return `the control plane's database does not know ${server_id}`
    case "elsewhere":
      return `by the control plane's database ${server_id} is on node ${node_id}, not here`
    case "moved":
      return `${server_id} is on another node, but was in use here`
  }
}

/** Makes a folder in `dir` readable, says so, and puts its note beside it; cut off, it can be done again. */
const finish = Effect.fnUntraced(function* (dir: string, name: string, reason: string) {
  const folder = join(dir, name)
  const left = yield* Effect.catch(mergeOwnFiles(folder), (error) =>
    Effect.as(Effect.logError(`the files in ${folder} are left as they are: ${error.message}`), [])
  )
  if (left.length > 0) {
    yield* Effect.logWarning(
      `what was written to ${left.join(", ")} is not in ${folder}/files, but in ${folder}/${TREE}/over.*/upper`
    )
  }
  yield* Effect.logWarning(
    `${reason}: it has ended here, and its files are kept in ${folder}/files. To have it back, copy them to a new server (docs/database.md, "Recover an orphan"); else remove ${folder}`
  )
  yield* rename(join(folder, UNFINISHED), `${folder}.json`).pipe(orMissing(undefined))
  yield* syncFolder(dir)
})

/** Does what was cut off, if anything was. */
const finishLater = Effect.fnUntraced(function* (dir: string, name: string) {
  const folder = join(dir, name)
  if ((yield* lstat(folder))?.isDirectory() !== true) return
  const text = yield* readText(join(folder, UNFINISHED)).pipe(orMissing(undefined))
  if (text === undefined) return
  const reason = yield* Effect.match(decode(text), {
    onSuccess: because,
    onFailure: () => `${name} was not known to the control plane`
  })
  yield* finish(dir, name, reason)
})

const freeName = Effect.fnUntraced(function* (dir: string, id: string) {
  const names = new Set(yield* listFolder(dir))
  for (let n = 1; ; n++) {
    const name = n === 1 ? id : `${id}-${n}`
    if (!names.has(name) && !names.has(`${name}.json`)) return name
  }
})

/** Puts a folder aside with one rename; answers what it is called there. */
const moveTo = Effect.fnUntraced(function* (dir: string, folder: string, id: string) {
  yield* makeClosedFolder(dir)
  const name = yield* freeName(dir, id)
  yield* rename(folder, join(dir, name))
  return { dir, name }
})

const writeNote = Effect.fnUntraced(function* (folder: string, state: ServerState, departure: Departure) {
  const record = yield* readTreeRecord(join(folder, TREE))
  const note: Note = {
    format: 1,
    server_id: state.spec.id,
    ...departure,
    at: new Date(yield* Clock.currentTimeMillis).toISOString(),
    ...(record === undefined ? {} : { base: join(generationsDir(FOLDERS.base), record.base) }),
    allocations: state.spec.allocations,
    definition: state.spec.definition
  }
  // The note is of the schema's own type.
  const text = JSON.stringify(yield* Effect.orDie(encode(note)), null, 2)
  yield* writeAtomic(join(folder, UNFINISHED), `${text}\n`)
  yield* syncFolder(folder)
})

export const makeOrphanedServers = ({ lost_dir, near_dir }: OrphanedServersOptions) => ({
  /**
   * Keeps the folder of a server: it is not at its place any more when this returns. Nothing of the server may run or be
   * mounted.
   */
  keep: Effect.fnUntraced(function* (
    folder: string,
    state: ServerState,
    departure: Departure
  ): Effect.fn.Return<void, IoError> {
    const { id } = state.spec
    // A full disk is no reason to lose it: what it was is in its own state, too.
    yield* Effect.catch(writeNote(folder, state, departure), (error) =>
      Effect.logWarning(`what ${id} was cannot be noted: ${error.message}`)
    )
    const { dir, name } = yield* moveTo(lost_dir, folder, id).pipe(
      Effect.catchIf(
        (error) => error.code === "EXDEV",
        () => moveTo(near_dir, folder, id)
      )
    )
    yield* syncFolder(dirname(folder)).pipe(
      Effect.andThen(syncFolder(dir)),
      Effect.andThen(finish(dir, name, because({ server_id: id, ...departure }))),
      Effect.catch((error) => Effect.logError(`${join(dir, name)}, files of ${id}: ${error.message}`))
    )
  }),
  /** Goes on with what was cut off. */
  goOn: Effect.forEach(
    [lost_dir, near_dir],
    (dir) =>
      Effect.flatMap(listFolder(dir), (names) =>
        Effect.forEach(names, (name) => finishLater(dir, name), { discard: true })
      ),
    { discard: true }
  ).pipe(Effect.catch((error) => Effect.logError(`lost servers cannot be looked at: ${error.message}`)))
})
