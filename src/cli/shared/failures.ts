/** The failures of a command, for its user: one line on standard error, and the exit status. */
import { Cause, Console, Data, Effect, Runtime } from "effect"
import { replaceHostile } from "../../contract/domain/NodeText.ts"

/** The exit statuses of commands (spec 8). */
export const exitStatus = {
  failed: 1,
  /** Refused because of the state or of the capacity (409, 503), or a start that cannot succeed. */
  refused: 2,
  notFound: 3,
  /** The key is missing, wrong or lacks a right (401, 403). */
  notAllowed: 4,
  /** The service cannot be reached. */
  unreachable: 5,
  usage: 64
} as const

export type ExitStatus = keyof typeof exitStatus

/** The exit status for a status of HTTP (spec 8). */
export const statusOf: Readonly<Record<string, ExitStatus>> = {
  401: "notAllowed",
  403: "notAllowed",
  404: "notFound",
  409: "refused",
  422: "usage",
  503: "refused"
}

/** Makes the function that returns a failure with an exit status. */
const withStatus =
  (status: ExitStatus) =>
  (message: string): CommandError =>
    new CommandError({ status, message })

/** The failure of a command. The message, in one line, has the reason and the next step; empty: it is printed already. */
export class CommandError extends Data.TaggedError("CommandError")<{
  readonly status: ExitStatus
  readonly message: string
  /** The end of the message that other failures of the command may have, too. */
  readonly hint?: string
}> {
  static readonly failed = withStatus("failed")
  static readonly refused = withStatus("refused")
  static readonly notFound = withStatus("notFound")
  static readonly notAllowed = withStatus("notAllowed")
  static readonly unreachable = withStatus("unreachable")
}

export const wrongUsage = withStatus("usage")

/** Does something else if an object does not exist. */
export const ifMissing =
  <A, E, R>(other: (missing: CommandError) => Effect.Effect<A, E, R>) =>
  <B, S>(found: Effect.Effect<B, CommandError, S>): Effect.Effect<A | B, E | CommandError, R | S> =>
    Effect.catchIf(found, ({ status }) => status === "notFound", other)

/** Returns why a file cannot be read or written: `it does not exist (/tmp/key)`. */
export const whyNoFile = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  const code = "code" in cause ? String(cause.code) : ""
  const reason = Object.hasOwn(reasons, code) ? reasons[code] : cause.message
  return "path" in cause ? `${reason} (${cause.path})` : `${reason}`
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  EEXIST: "it already exists",
  ENOTDIR: "a file is in the way",
  EISDIR: "it is a folder",
  EACCES: "this user may not",
  EPERM: "this user may not",
  EROFS: "the file system is read-only",
  ENOSPC: "the disk is full"
}

const isNamed = (value: unknown): value is { readonly message: string; readonly _tag: string } =>
  typeof value === "object" && value !== null && "_tag" in value && "message" in value

/** Returns a sentence for a failure whose own message is not meant for the user of a command. */
const explain = (failure: unknown): string => {
  if (!isNamed(failure)) return String(failure)
  const cause: unknown = "cause" in failure ? failure.cause : undefined
  if (failure._tag === "ServeError" && cause instanceof Error) {
    const code = "code" in cause ? cause.code : undefined
    if (code === "EADDRINUSE")
      return `the address is in use (${cause.message}): set MUSTER_PORT or MUSTER_HOST`
    return `cannot listen (${cause.message}): set MUSTER_PORT or MUSTER_HOST`
  }
  return failure.message
}

/** The failure is on standard error; the process ends with `status`. */
class Explained extends Data.TaggedError("Explained")<{ readonly status: number }> {
  override readonly [Runtime.errorExitCode] = this.status
}

/** Commands beside the service fail with the errors of its API, too. */
const statusIn = (failure: unknown): ExitStatus => {
  if (failure instanceof CommandError) return failure.status
  const code = isNamed(failure) && "code" in failure ? String(failure.code) : ""
  return Object.hasOwn(statusOf, code) ? (statusOf[code] ?? "failed") : "failed"
}

const explained = (failure: unknown) => {
  const status = exitStatus[statusIn(failure)]
  const text = withCommands(explain(failure))
  // Texts of the service may have control characters; messages of several lines are the program's own.
  const printed = text === "" ? Effect.void : Console.error(text.split("\n").map(printable).join("\n"))
  return Effect.andThen(printed, Effect.fail(new Explained({ status })))
}

const printable = (line: string): string => replaceHostile(line, "?")

/** Prints a failure in one line on standard error. Defects keep their stack; mistakes in usage are printed already. */
export const explainFailure = <A, E, R>(
  command: Effect.Effect<A, E, R>
): Effect.Effect<A, E | Explained, R> =>
  Effect.catchCause(command, (cause): Effect.Effect<never, E | Explained> => {
    const failure = Cause.findErrorOption(cause)
    if (failure._tag === "None") {
      return Cause.hasInterruptsOnly(cause)
        ? Effect.failCause(cause)
        : Effect.andThen(
            Console.error(Cause.pretty(cause)),
            Effect.fail(new Explained({ status: exitStatus.failed }))
          )
    }
    const { value } = failure
    if (!isNamed(value) || value._tag !== "ShowHelp") return explained(value)
    const isMistake = "errors" in value && Array.isArray(value.errors) && value.errors.length > 0
    return isMistake ? Effect.fail(new Explained({ status: exitStatus.usage })) : Effect.failCause(cause)
  })

/** Routes in messages of the service, whose hints are for callers of the API, with their commands. A power action depends on the words before the route. */
const commands: Readonly<Record<string, string>> = {
  "GET /api/audit": "muster audit",
  "GET /api/backups": "muster backups list",
  "GET /api/backup-targets": "muster backups targets list",
  "PATCH /api/backup-targets/:target": "muster backups targets patch <target>",
  "GET /api/backups/:backup": "muster backups show <backup>",
  "GET /api/backups/:backup/archive": "muster backups get <backup>",
  "GET /api/backups/:backup/files": "muster backups files <backup>",
  "GET /api/backups/:backup/files/content": "muster backups get <backup>",
  "GET /api/blueprints": "muster blueprints list",
  "POST /api/blueprints/reload": "muster blueprints reload",
  "GET /api/keys": "muster keys list",
  "DELETE /api/keys/:key": "muster keys revoke <key>",
  "GET /api/nodes": "muster nodes list",
  "GET /api/nodes/:node": "muster nodes show <node>",
  "PATCH /api/nodes/:node/drained": "muster nodes undrain <node>",
  "GET /api/operations": "muster operations list",
  "GET /api/operations/:operation": "muster operations show <operation>",
  "DELETE /api/operations/:operation": "muster operations cancel <operation>",
  "GET /api/quotas": "muster quotas list",
  "POST /api/quotas": "muster quotas create <name>",
  "PATCH /api/quotas/:quota": "muster quotas patch <quota>",
  "GET /api/rollouts": "muster rollouts list",
  "GET /api/rollouts/:rollout": "muster rollouts show <rollout>",
  "POST /api/rollouts/:rollout/abort": "muster rollouts abort <rollout>",
  "GET /api/runs/:run": "muster schedules runs <schedule>",
  "POST /api/runs/:run/cancel": "muster schedules cancel <run>",
  "GET /api/schedules": "muster schedules list",
  "GET /api/schedules/:schedule/runs": "muster schedules runs <schedule>",
  "GET /api/servers": "muster servers list",
  "POST /api/servers": "muster servers create",
  "POST /api/servers with from_backup": "muster servers create --from-backup <backup>",
  "PATCH /api/servers/:server": "muster servers patch <server>",
  "GET /api/servers/:server/files": "muster files ls <server>",
  "GET /api/servers/:server/files/archive": "muster files get <server>:<path> -r",
  "GET /api/servers/:server/install": "muster servers install-log <server>",
  "GET /api/servers/:server/install/logs": "muster servers install-log <server>",
  "GET /api/servers/:server/logs": "muster servers logs <server>",
  "POST /api/servers/:server/power": "muster servers stop <server>",
  "start it again: POST /api/servers/:server/power": "muster servers start <server>",
  "POST /api/servers/:server/reinstall": "muster servers reinstall <server>",
  "POST /api/servers/:server/upgrade": "muster servers upgrade <server>",
  "POST /api/servers/:server/upgrade with blueprint_id": "muster servers upgrade <server> --blueprint <id>",
  "GET /api/software": "muster software list",
  "POST /api/software/reload": "muster software reload",
  "GET /api/webhooks": "muster webhooks list"
}

/** Flags of query parameters with another name. */
const flags: Readonly<Record<string, string>> = { q: "search", server_id: "server" }

const longestFirst = Object.keys(commands).toSorted((one, other) => other.length - one.length)

/** A route, with a query that has a flag, but not as the beginning of a longer one. */
const routes = new RegExp(
  `(${longestFirst.join("|")})(?![\\w/:-])(?:\\?(q|object|server_id|state)=(\\w+))?`,
  "g"
)

/** The beginning of a message that names the server or the run of the command in its hint. */
const aboutObject = /^(?:server is [a-z ]+: (\w+)|schedule \w+ runs: (\w+))\. /

/**
 * Replaces routes and parameters in a message by commands and flags; commands have a placeholder where neither `server`
 * nor the message names the object.
 */
export const withCommands = (message: string, server?: string): string => {
  const [, named = "<server>", run = "<run>"] = aboutObject.exec(message) ?? []
  return message
    .replace(routes, (_, route: string, name: string | undefined, value: string) => {
      const words = /^(.*?)(?:DELETE|GET|POST|PATCH) /.exec(route)?.[1] ?? ""
      const option = name === undefined ? "" : ` --${flags[name] ?? name} ${value}`
      const command = commands[route]?.replace("<server>", server ?? named).replace("<run>", run)
      return `${words}\`${command}${option}\``
    })
    .replace(/\boverrides\.save: true/g, "`--set save=true`")
    .replace(/\bsend force=true\b/g, "add `--force`")
    .replace(/\bSend overwrite=replace, or\b/g, "Add `--force`, or")
}
