/** Names of files between servers and this system. A name of a server never leads out of the folder that it is for. */
import { Result } from "effect"

const ESCAPED = /%(?:25|[89A-F][0-9A-F])/g

const PERCENT = "%".charCodeAt(0)

/** Returns the bytes of a name as the service shows it: `%XX` is a byte that is not UTF-8, `%25` a `%` (spec 10.2). */
export const bytesOf = (shown: string): Buffer => {
  const parts: Array<Buffer> = []
  let from = 0
  for (const { 0: escape, index } of shown.matchAll(ESCAPED)) {
    parts.push(Buffer.from(shown.slice(from, index)), Buffer.from(escape.slice(1), "hex"))
    from = index + escape.length
  }
  return Buffer.concat([...parts, Buffer.from(shown.slice(from))])
}

/** Returns how many bytes at an index are one character of UTF-8; 0 if they are none. */
const characterAt = (bytes: Buffer, at: number): number => {
  const [lead = 0] = bytes.subarray(at, at + 1)
  const length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0
  const character = bytes.subarray(at, at + length)
  return Buffer.from(character.toString()).equals(character) ? length : 0
}

const hex = (byte: number): string => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`

/** Returns a name of this system as the service shows it; {@link bytesOf} reads it back. */
export const shownName = (bytes: Buffer): string => {
  let shown = ""
  for (let at = 0; at < bytes.length; ) {
    const length = characterAt(bytes, at)
    const [byte = 0] = bytes.subarray(at, at + 1)
    const isEscape = byte === PERCENT && /^%[0-9A-F]{2}$/.test(bytes.subarray(at, at + 3).toString("latin1"))
    shown += length === 0 || isEscape ? hex(byte) : bytes.subarray(at, at + length).toString()
    at += Math.max(1, length)
  }
  return shown
}

const SLASH = "/".charCodeAt(0)

/** The longest name of Linux and macOS, in bytes. */
export const MAX_NAME = 255

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
  const bytes = bytesOf(shown)
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

/**
 * Returns the name under which a file arrives: `NAME.part`, or a random one if that is too long or a file of the same
 * download.
 */
export const partName = (name: Buffer, isTaken: (shown: string) => boolean, random: string): Buffer => {
  const part = Buffer.concat([name, PART])
  return part.length > MAX_NAME || isTaken(shownName(part)) ? Buffer.from(`.${random}.part`) : part
}
