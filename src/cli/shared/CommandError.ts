import { Data } from "effect"

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

/** The failure of a command. The message, in one line, has the reason and the next step; empty: it is printed already. */
export class CommandError extends Data.TaggedError("CommandError")<{
  readonly status: ExitStatus
  readonly message: string
}> {}

export const wrongUsage = (message: string): CommandError => new CommandError({ status: "usage", message })

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
