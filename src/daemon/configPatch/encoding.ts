import { Result } from "effect"
import type { ConfigParser } from "../../domain/ConfigPatch.ts"
import { problem } from "./find.ts"
import type { PatchProblem } from "./PatchProblem.ts"

export type Encoding = "utf8" | "latin1"

export interface Decoded {
  readonly text: string
  readonly encoding: Encoding
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Line formats are often in Latin-1, which keeps any bytes when it is read and written. */
const anyBytes: ReadonlyArray<ConfigParser> = ["properties", "ini", "file"]

/** Decodes a config file: UTF-8, or Latin-1 if the format has no encoding of its own. */
export const decodeText = (bytes: Uint8Array, parser: ConfigParser): Result.Result<Decoded, PatchProblem> => {
  const decoded = Result.try(() => utf8.decode(bytes))
  if (Result.isSuccess(decoded)) return Result.succeed({ text: decoded.success, encoding: "utf8" })
  const [first, second] = bytes
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) {
    return problem("it is UTF-16, which is not supported")
  }
  if (!anyBytes.includes(parser)) return problem("it is not UTF-8")
  return Result.succeed({ text: Buffer.from(bytes).toString("latin1"), encoding: "latin1" })
}

/** Encodes the text; fails if the encoding cannot hold a character. */
export const encodeText = (text: string, encoding: Encoding): Result.Result<Buffer, PatchProblem> => {
  if (!text.isWellFormed()) return problem("a value is not valid Unicode")
  if (encoding === "latin1" && /[\u0100-\uffff]/.test(text)) {
    return problem("it is Latin-1, which cannot hold a character of a value")
  }
  return Result.succeed(Buffer.from(text, encoding))
}
