import { Result } from "effect"

const MAX_NAME_BYTES = 255
const MAX_PARTS = 64

const encoder = new TextEncoder()

/** The limit is in bytes: a UTF-16 code unit takes at most three. */
const isTooLong = (name: string): boolean =>
  name.length * 3 > MAX_NAME_BYTES && encoder.encode(name).length > MAX_NAME_BYTES

/** Returns the names that a relative path consists of; fails with the reason, in words that follow the path. */
export const pathParts = (path: string): Result.Result<ReadonlyArray<string>, string> => {
  if (path.includes("\0")) return Result.fail("contains a NUL character")
  if (path.startsWith("/")) return Result.fail("is absolute")
  const parts = path.split("/").filter((part) => part !== "" && part !== ".")
  if (parts.length === 0) return Result.fail("names no file")
  if (parts.includes("..")) return Result.fail("contains `..`")
  if (parts.some(isTooLong)) {
    return Result.fail(`has a name of more than ${MAX_NAME_BYTES} bytes`)
  }
  return parts.length > MAX_PARTS
    ? Result.fail(`is more than ${MAX_PARTS} names deep`)
    : Result.succeed(parts)
}
