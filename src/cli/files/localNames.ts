/** Names of files between servers and this system. A name of a server never leads out of the folder that it is for. */
import { Result } from "effect"
import { nameBytes } from "../../contract/domain/Files.ts"

const SLASH = "/".charCodeAt(0)

/** The longest name of Linux and macOS, in bytes. */
const MAX_NAME = 255

const WINDOWS_DEVICE = /^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)/i

const whyNotOnWindows = (name: string): string | undefined => {
  if (/[<>:"\\|?*]/.test(name)) return 'Windows has no names with < > : " \\ | ? *'
  if (/[. ]$/.test(name)) return "Windows has no names that end with a dot or a blank"
  return WINDOWS_DEVICE.test(name) ? "Windows reserves this name" : undefined
}

/**
 * Returns the name for this system of an entry of a folder, as bytes. Fails with the reason if the name would lead
 * elsewhere, or if the system has no such names.
 */
export const localName = (
  shown: string,
  platform: NodeJS.Platform = process.platform
): Result.Result<Buffer, string> => {
  const bytes = Buffer.from(nameBytes(shown))
  const text = bytes.toString("latin1")
  if (text === "" || text === "." || text === "..") return Result.fail("it is no name of a file")
  if (bytes.includes(SLASH)) return Result.fail("a name has no slash")
  if (bytes.includes(0)) return Result.fail("a name has no NUL")
  if (bytes.length > MAX_NAME) return Result.fail(`it is longer than ${MAX_NAME} bytes`)
  const why = platform === "win32" ? whyNotOnWindows(text) : undefined
  return why === undefined ? Result.succeed(bytes) : Result.fail(why)
}

/** Returns the path of a name in a folder, both as bytes. */
export const within = (folder: Buffer, name: Buffer): Buffer =>
  Buffer.concat([folder, folder.at(-1) === SLASH ? Buffer.of() : Buffer.from("/"), name])

const PART = Buffer.from(".part")

/** Returns the name under which a file arrives: `NAME.part`, or a random one if that is too long. */
export const partName = (name: Buffer, random: string): Buffer => {
  const part = Buffer.concat([name, PART])
  return part.length > MAX_NAME ? Buffer.from(`.${random}.part`) : part
}
