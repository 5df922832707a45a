import { Data } from "effect"

/** The exit statuses of commands (operators.md, "Command line"). */
export const exitStatus = {
  /** The operation failed. */
  failed: 1,
  /** Refused because of the state or of the capacity (409, 503). */
  refused: 2,
  notFound: 3,
  /** The key is missing, wrong or lacks a right (401, 403). */
  notAllowed: 4,
  /** The service cannot be reached. */
  unreachable: 5,
  /** Wrong usage. */
  usage: 64
} as const

export type ExitStatus = keyof typeof exitStatus

/** The failure of a command. The message, in one line, has the reason and the next step; empty: it is printed already. */
export class CommandError extends Data.TaggedError("CommandError")<{
  readonly status: ExitStatus
  readonly message: string
}> {}

/** Makes the failure of a command that is used in a wrong way. */
export const wrongUsage = (message: string): CommandError => new CommandError({ status: "usage", message })
