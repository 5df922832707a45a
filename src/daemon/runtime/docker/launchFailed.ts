/** The conversion of an error of the engine, or of a file, to a failed launch. Pure. */
import { LaunchFailed, noProgram } from "../Runtime.ts"

/** Hints by message of the engine. */
const remedies: ReadonlyArray<readonly [RegExp, string]> = [
  [/port is already allocated|address already in use/i, "stop the program that uses the port"],
  [/no space left on device/i, "free space on the engine's disk"],
  [/permission denied/i, "give the user of the daemon access to the engine"],
  [/does not answer/, "start Docker, or allow the software to run as a process (`runtimes`)"],
  [/is too old/, "install Docker Engine 20.10 or newer"]
]

export const launchFailed = (error: {
  readonly message: string
  readonly code?: string
  readonly next?: string
}): LaunchFailed => {
  const { code, message } = error
  const [, missing] =
    /exec: "(.+?)": (?:executable file not found in \$PATH|stat .*no such file)/.exec(message) ?? []
  if (missing !== undefined) return noProgram(missing, "of the image")
  const next = error.next ?? remedies.find(([pattern]) => pattern.test(message))?.[1]
  return new LaunchFailed({
    message,
    ...(code === undefined ? {} : { code }),
    ...(next === undefined ? {} : { next })
  })
}
