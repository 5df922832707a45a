import { randomUUID } from "node:crypto"
import { join } from "node:path"
import { Effect, Latch, Schema, Semaphore } from "effect"
import { InstallState } from "../../domain/InstallState.ts"
import { type DaemonServer, type HeldServer, Report, ServerSpec } from "../../domain/NodeMessages.ts"
import type { Crash } from "../../domain/ServerEvent.ts"
import { isUp, ServerStatus } from "../../domain/ServerStatus.ts"
import { type IoError, readText, writeAtomic } from "../disk/fsio.ts"

/** What was asked of a process that has to end; it decides what its end means. */
export const Intent = Schema.Struct({
  type: Schema.Literals(["stop", "kill", "restart", "reset"]),
  /** When the stop becomes a kill, ms since the epoch. */
  deadline: Schema.Finite
})
export type Intent = typeof Intent.Type

/** One run of the process. */
export const RunState = Schema.Struct({
  token: Schema.String,
  started_at: Schema.Finite,
  /** Where its output begins in `console.log`. */
  log_offset: Schema.Int,
  /** The start took too long: its end is the crash `start timed out`. */
  timed_out: Schema.Boolean
})
export type RunState = typeof RunState.Type

/** Work on the files that has to be done, or done again after a crash. */
export const FileWork = Schema.Literals(["none", "install", "reinstall", "reset"])
export type FileWork = typeof FileWork.Type

/**
 * All that the daemon knows of one server, in one file that is replaced as a whole: a change of state and the
 * report that tells of it are there together or not at all.
 */
export const ServerState = Schema.Struct({
  format: Schema.Literal(1),
  spec: ServerSpec,
  status: ServerStatus,
  install: InstallState,
  work: FileWork,
  intent: Schema.NullOr(Intent),
  run: Schema.NullOr(RunState),
  /** It has to be started again: a restart, or the restart after a crash. */
  start_again: Schema.Boolean,
  /** Times of the starts after crashes, ms since the epoch, of the last hour. */
  restarts: Schema.Array(Schema.Finite),
  /** It is about to be moved to another node: it is not started, and its files stay as they are. */
  held: Schema.optionalKey(Schema.Boolean),
  /** The uid, and gid, of its processes and files; absent where it runs as the user of the daemon, or in containers. */
  uid: Schema.optionalKey(Schema.Int),
  /** Number of the last report that was made. */
  sequence: Schema.Int,
  /** Reports that have yet to be answered, oldest first. */
  reports: Schema.Array(Report)
})
export type ServerState = typeof ServerState.Type

const ServerStateJson = Schema.fromJsonString(ServerState)
const decode = Schema.decodeUnknownEffect(ServerStateJson)
const encode = Schema.encodeUnknownEffect(ServerStateJson)

/** State of a server that has just been asked for. */
export const newServerState = (spec: ServerSpec, uid?: number): ServerState => ({
  format: 1,
  spec,
  ...(uid === undefined ? {} : { uid }),
  status: "installing",
  install: { phase: "pending" },
  work: "install",
  intent: null,
  run: null,
  start_again: false,
  restarts: [],
  sequence: spec.last_sequence ?? 0,
  reports: []
})

/** What to tell the control plane, before it has its number. */
export type Notice =
  | { readonly type: "status"; readonly status: ServerStatus; readonly transient: boolean }
  | { readonly type: "install-status"; readonly install: InstallState }
  | { readonly type: "crash"; readonly crash: Crash }

/** The state with a report added; a status or install report also changes the state itself. */
export const withNotice = (state: ServerState, notice: Notice): ServerState => {
  const sequence = state.sequence + 1
  const report: Report = { ...notice, server_id: state.spec.id, sequence }
  const next = { ...state, sequence, reports: [...state.reports, report] }
  if (notice.type === "status") return { ...next, status: notice.status }
  return notice.type === "install-status" ? { ...next, install: notice.install } : next
}

/** What registrations and `create` say of it. */
export const daemonServer = (state: ServerState): DaemonServer => ({
  id: state.spec.id,
  status: state.status,
  install: state.install,
  unsent_reports: state.reports.length,
  ...(state.held === true ? { held: true } : {})
})

/** What `hold` says of it: whether it would be up if it were left alone. */
export const heldServer = (state: ServerState): HeldServer => {
  const { intent, start_again, status } = state
  const stays = isUp(status) && status !== "stopping" && intent === null
  return { ...daemonServer(state), up: stays || intent?.type === "restart" || start_again }
}

/** `server.json` of one server. */
export interface ServerFile {
  /** The state as it is on disk. */
  readonly get: () => ServerState
  /** Changes the state and writes it before anyone sees it. A disk that refuses is logged: the truth goes on in memory. */
  update(change: (state: ServerState) => ServerState): Effect.Effect<ServerState>
  /** Opens with every new report. */
  readonly news: Latch.Latch
}

const fileName = "server.json"

const write = (folder: string, state: ServerState): Effect.Effect<void, IoError> =>
  encode(state).pipe(
    Effect.orDie, // the state is of the schema's own type
    Effect.flatMap((text) => writeAtomic(join(folder, fileName), text))
  )

const make = Effect.fnUntraced(function* (folder: string, initial: ServerState) {
  const lock = yield* Semaphore.make(1)
  const news = yield* Latch.make(initial.reports.length > 0)
  let current = initial
  const replace = Effect.fnUntraced(function* (change: (state: ServerState) => ServerState) {
    const changed = change(current)
    if (changed === current) return current
    yield* Effect.catch(write(folder, changed), (error) =>
      Effect.logError(`state of ${changed.spec.id} cannot be kept: ${error.message}`)
    )
    const more = changed.sequence > current.sequence
    current = changed
    if (more) news.openUnsafe()
    return changed
  })
  const file: ServerFile = {
    get: () => current,
    news,
    update: (change) => Effect.uninterruptible(lock.withPermit(replace(change)))
  }
  return file
})

/** Writes the first state of a new server. Fails when the disk refuses: nothing was promised yet. */
export const createServerFile = Effect.fnUntraced(function* (folder: string, spec: ServerSpec, uid?: number) {
  const state = newServerState(spec, uid)
  yield* write(folder, state)
  return yield* make(folder, state)
})

/** Reads the state of a server back. Fails when the file is missing or not what this daemon writes. */
export const openServerFile = Effect.fnUntraced(function* (folder: string) {
  const state = yield* decode(yield* readText(join(folder, fileName)))
  return yield* make(folder, state)
})

/** Name of a new run. */
export const newToken = (): string => randomUUID()
