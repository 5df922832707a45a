import { Result } from "effect"
import { pathParts } from "../../domain/filePath.ts"
import { targetParts } from "../../domain/filePlan.ts"
import { printable } from "./problem.ts"

const segments = (path: string): ReadonlyArray<string> =>
  path.split("/").filter((part) => part !== "" && part !== ".")

const fault = (path: string): string | undefined => {
  if (path.length > 1024) return "is longer than 1,024 characters"
  if (/\p{Cc}/u.test(path)) return "contains control characters"
  if (path.includes("\\")) return "contains a backslash; write /"
  if (segments(path).includes("..")) return "contains `..`"
  return undefined
}

const refuse = (path: string, reason: string) => Result.fail(`the path \`${printable(path, 80)}\` ${reason}`)

/** Returns a relative path in its shortest form; fails with the reason if it is absolute or could leave its folder. */
export const relativePath = (path: string): Result.Result<string, string> => {
  const reason = path.startsWith("/") ? "must be relative" : fault(path)
  if (reason !== undefined) return refuse(path, reason)
  const parts = segments(path)
  return parts.length === 0 ? refuse(path, "names no file") : Result.succeed(parts.join("/"))
}

/** {@link relativePath} for a path on a node: its names are not too long, and not too many. */
export const instancePath = (path: string): Result.Result<string, string> =>
  Result.flatMap(relativePath(path), (short) => {
    const parts = pathParts(short)
    return Result.isFailure(parts) ? refuse(path, parts.failure) : Result.succeed(short)
  })

/** A path inside the instance; a leading `/` is the instance's (or the container's) root. */
export const targetPath = (path: string): Result.Result<string, string> => {
  const reason = path === "" ? "names no file" : fault(path)
  if (reason !== undefined) return refuse(path, reason)
  const short = `${path.startsWith("/") ? "/" : ""}${segments(path).join("/")}`
  const parts = targetParts(short)
  if (Result.isSuccess(parts)) return Result.succeed(short)
  const whole = parts.failure === "names no file"
  return refuse(path, whole ? "is the instance folder itself; name a place in it" : parts.failure)
}

/** {@link targetPath}, as a path relative to the instance. */
export const copyTarget = (path: string): Result.Result<string, string> =>
  Result.flatMap(targetPath(path), (target) => Result.map(targetParts(target), (parts) => parts.join("/")))

/** An absolute path of the host. */
export const hostPath = (path: string): Result.Result<string, string> => {
  const reason = path.startsWith("/") ? fault(path) : "must be absolute"
  return reason === undefined ? Result.succeed(`/${segments(path).join("/")}`) : refuse(path, reason)
}
