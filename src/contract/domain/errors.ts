/** The errors that callers see, one class per status, so that the derived client decodes the same class (spec 1.4). */
import { ApiError } from "./ApiError.ts"
import { isBeginningOfServerId } from "./Id.ts"

/** 400: the head of the request is malformed. */
export class BadRequest extends ApiError<BadRequest>()("BadRequest") {}

/** 401: no key, a malformed header, or a key that is unknown, revoked or expired. */
export class Unauthorized extends ApiError<Unauthorized>()("Unauthorized") {
  static keyEnded() {
    return new Unauthorized({ detail: "the API key is not valid" })
  }
}

/** 403: a valid key that lacks the scope. */
export class Forbidden extends ApiError<Forbidden>()("Forbidden") {}

/** Makes the function that returns the 404 of an id. A body may have one of any length. */
const missing =
  (what: string, hint: string) =>
  (id: string): NotFound =>
    new NotFound({ detail: `${what} not found: ${id.slice(0, 200)}`, hint })

/** 404: the thing that the request names does not exist. */
export class NotFound extends ApiError<NotFound>()("NotFound") {
  static readonly blueprint = missing(
    "blueprint",
    "GET /api/blueprints lists what exists; POST /api/blueprints/reload reads new files."
  )
  static readonly mixin = missing("mixin", "GET /api/mixins lists what exists.")
  static readonly software = missing("software", "GET /api/software lists what exists.")
  static readonly node = missing("node", "GET /api/nodes lists what exists.")
  static server(id: string) {
    return new ServerNotFound({
      detail: `server not found: ${id}`,
      hint: isBeginningOfServerId(id)
        ? `This route needs the whole id; GET /api/servers?q=${id} lists the servers whose ids begin with this, or whose names contain it.`
        : "GET /api/servers lists what exists."
    })
  }
  /** The server with this id or name was deleted. @param deleted_at milliseconds since the epoch */
  static deletedServer(
    text: string,
    { deleted_at, id, reason }: { readonly id: string; readonly deleted_at: number; readonly reason: string }
  ) {
    const which = text === id ? "it" : `the server ${id} of this name`
    return new NotFound({
      detail: `server not found: ${text}: ${which} was deleted at ${new Date(deleted_at).toISOString()}: ${reason}`,
      hint: [
        `GET /api/audit?object=${id} has its last changes.`,
        ...(reason.startsWith("it is not saved")
          ? ["To keep a server that stops, create it with overrides.save: true."]
          : [])
      ].join(" ")
    })
  }
  static serverBeginning(beginning: string) {
    return new ServerNotFound({
      detail: `server not found: ${beginning}`,
      hint: "GET /api/servers lists what exists."
    })
  }
  static readonly rollout = missing("rollout", "GET /api/rollouts lists what exists.")
  static readonly schedule = missing("schedule", "GET /api/schedules lists what exists.")
  static readonly run = missing(
    "run",
    "GET /api/schedules/:schedule/runs lists the last 100 runs of a schedule."
  )
  static readonly backup = missing("backup", "GET /api/backups lists what exists.")
  static readonly backupTarget = missing("target", "GET /api/backup-targets lists what exists.")
  static readonly operation = missing(
    "operation",
    "GET /api/operations lists what exists; an operation is kept for 24 h after its end."
  )
}

/** A server that does not exist: a route with its id or name adds why the server was deleted. */
export class ServerNotFound extends NotFound {}

/** 405: the path has other methods. */
export class MethodNotAllowed extends ApiError<MethodNotAllowed>()("MethodNotAllowed") {}

/** 409: the request is valid, but not in the current state of its resource. */
export class Conflict extends ApiError<Conflict>()("Conflict") {}

/** 410: a cursor older than the retained journal. */
export class CursorExpired extends ApiError<CursorExpired>()("CursorExpired") {}

/** 412: a file is not as the condition of the request says. */
export class PreconditionFailed extends ApiError<PreconditionFailed>()("PreconditionFailed") {}

/** 416: the file has none of the requested bytes. */
export class RangeNotSatisfiable extends ApiError<RangeNotSatisfiable>()("RangeNotSatisfiable") {}

/** 422: the request cannot be read, or asks for something that is not possible. */
export class InvalidRequest extends ApiError<InvalidRequest>()("InvalidRequest") {}

/** Names the first of some things: `a, b and 3 more`. */
export const named = (names: ReadonlyArray<string>, most = 10): string =>
  `${names.slice(0, most).join(", ")}${names.length > most ? ` and ${names.length - most} more` : ""}`

export const MOST_REASONS = 10

/** Joins the reasons against one request (spec 1.4): each once, at most {@link MOST_REASONS}. */
export const joinReasons = (reasons: ReadonlyArray<string>): string => {
  const all = [...new Set(reasons)]
  const more = all.length - MOST_REASONS
  return [...all.slice(0, MOST_REASONS), ...(more > 0 ? [`${more} more`] : [])].join("; ")
}

/** 423: another request sends the bytes of the upload. */
export class Locked extends ApiError<Locked>()("Locked") {}

/** 460: the bytes do not have the announced checksum (tus 1.0). */
export class ChecksumMismatch extends ApiError<ChecksumMismatch>()("ChecksumMismatch") {}

/** 426: the path speaks WebSocket only. */
export class UpgradeRequired extends ApiError<UpgradeRequired>()("UpgradeRequired") {}

/** 429: too many failed authentications, or the limit of the key is used up. */
export class TooManyRequests extends ApiError<TooManyRequests>()("TooManyRequests") {}

/** 502: the node answered with an error. */
export class NodeFailure extends ApiError<NodeFailure>()("NodeFailure") {}

/** 502: a git repository of definitions could not be synced; everything else was done. */
export class SourceFailed extends ApiError<SourceFailed>()("SourceFailed") {}

/** 503: the request is valid and cannot be carried out now; a later try may succeed. */
export class Unavailable extends ApiError<Unavailable>()("Unavailable") {
  static noNodes(why: string) {
    return new Unavailable({
      detail: "no nodes available",
      hint: why
    })
  }
  static nodeNotConnected(
    id: string,
    hint = "Try again once the node is connected; GET /api/nodes/:node has its state."
  ) {
    return new Unavailable({ detail: `node is not connected: ${id}`, hint })
  }
  static nodeCannotRun(
    id: string,
    offered: ReadonlyArray<string>,
    needed: ReadonlyArray<string>,
    next = "choose other software, or start the runtime on the node"
  ) {
    const what = offered.length === 0 ? "no runtime" : offered.join(" and ")
    return new Unavailable({
      detail: `node cannot run this software: ${id}`,
      hint: `It offers ${what}, the software needs ${needed.join(" or ")}; ${next}.`
    })
  }
  static nodeFull(id: string, what: string) {
    return new Unavailable({
      detail: `node is full: ${id}`,
      hint: `${what}; name another node or none.`
    })
  }
  static starting() {
    return new Unavailable({
      detail: "the embedded node of this service is starting",
      hint: "Nothing was changed; try again shortly. The log of the service says what the start waits for."
    })
  }
  static store() {
    return new Unavailable({
      detail: "the database cannot be reached",
      hint: "Nothing was changed; try again shortly."
    })
  }
  /** Another transaction held a lock for longer than a write waits. */
  static storeLocked() {
    return new Unavailable({
      detail: "the database is locked: another session has held a lock for too long",
      hint: "Nothing was changed; try again shortly. If it persists, end the other session: see docs/database.md."
    })
  }
  /** The record says that the removal has begun; the garbage collector completes it. */
  static removalBegun() {
    return new Unavailable({
      detail: "the database cannot be reached",
      hint: "The removal has begun and continues once the database is back; the request may be repeated."
    })
  }
  /** The database became unavailable, or the service stopped, before the outcome of a change was known. */
  static storeUnknown() {
    return new Unavailable({
      detail: "the database cannot be reached",
      hint: "It is unknown whether the change was made: repeat the request with the same Idempotency-Key, or read the current state first."
    })
  }
}

const FULL = "the disk of the database is full"

/** A write without room: {@link InsufficientStorage} for routes that change, {@link Unavailable} elsewhere. */
export class DatabaseFull extends Unavailable {
  static of() {
    return new DatabaseFull({
      detail: FULL,
      hint: "Nothing was changed. Free space on that disk, for example by deleting servers; writes resume within seconds."
    })
  }
  static override removalBegun() {
    return new DatabaseFull({
      detail: FULL,
      hint: "The removal has begun and is completed once the disk has room. Free space on that disk."
    })
  }
}

/** 507: the disk of the database is full. */
export class InsufficientStorage extends ApiError<InsufficientStorage>()("InsufficientStorage") {
  static of({ detail, hint }: DatabaseFull) {
    return new InsufficientStorage({ detail, hint })
  }
}

/** 504: the request took longer than its time limit. */
export class TimedOut extends ApiError<TimedOut>()("TimedOut") {}

/** 413: the body exceeds the limit (1 MiB by default). */
export class BodyTooLarge extends ApiError<BodyTooLarge>()("BodyTooLarge") {}

/** 500: a defect of the service. Only the log has the cause, under the id of the request. */
export class InternalError extends ApiError<InternalError>()("InternalError") {}
