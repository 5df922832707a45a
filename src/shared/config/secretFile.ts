/** Files with a secret, as systemd's `LoadCredential`, Docker and Kubernetes provide them. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs"
import { Effect } from "effect"
import { StartError } from "./StartError.ts"

const LARGEST = 64 * 1024

const codeOf = (cause: unknown): string => {
  const said = cause instanceof Error ? cause.message : String(cause)
  // The system's sentence repeats the path.
  return said.replace(/, \w+ '.*'$/s, "")
}

/** Reads the bytes of the file; returns a text if it cannot be used, with the reason. */
const contents = (path: string): Buffer | string => {
  // Non-blocking: opening a pipe would wait for a writer.
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stats = fstatSync(descriptor)
    if (!stats.isFile()) return "is not a regular file"
    if (stats.size > LARGEST) return `has ${stats.size} bytes, and may have ${LARGEST}`
    return readFileSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Reads the file that a setting names. @error StartError missing, unreadable, no regular file, or over 64 KiB */
export const readSecretBytes = Effect.fnUntraced(function* (setting: string, path: string) {
  const found = yield* Effect.try({
    try: () => contents(path),
    catch: (cause) => new StartError({ message: `${setting}: ${path} cannot be read (${codeOf(cause)})` })
  })
  if (typeof found !== "string") return found
  return yield* new StartError({ message: `${setting}: ${path} ${found}` })
})

/** Reads a secret of one line from a file. @error StartError as {@link readSecretBytes}, or not exactly one line */
export const readSecretFile = Effect.fnUntraced(function* (setting: string, path: string) {
  const text = (yield* readSecretBytes(setting, path)).toString("utf8").replace(/[\r\n]+$/, "")
  const wrong = text === "" ? "is empty" : /[\r\n\0]/.test(text) ? "holds more than one line" : undefined
  if (wrong === undefined) return text
  return yield* new StartError({ message: `${setting}: ${path} ${wrong}` })
})
