/** What a failure of the engine, or of a file on the way to it, is to those who start a server. Pure. */
import { LaunchFailed } from "../Runtime.ts"

/** What the engine says, and what people do about it. */
const remedies: ReadonlyArray<readonly [RegExp, string]> = [
  [/port is already allocated|address already in use/i, "end what has the port"],
  [/no space left on device/i, "free space on the engine's disk"],
  [/permission denied/i, "let the user that the daemon runs as use the engine"],
  [/does not answer/, "start Docker, or let the software run as a process, too (`runtimes`)"],
  [/is too old/, "install Docker Engine 20.10 or newer"]
]

export const launchFailed = (error: {
  readonly message: string
  readonly code?: string
  readonly next?: string
}): LaunchFailed => {
  const { code, message } = error
  const next = error.next ?? remedies.find(([pattern]) => pattern.test(message))?.[1]
  return new LaunchFailed({
    message,
    ...(code === undefined ? {} : { code }),
    ...(next === undefined ? {} : { next })
  })
}
