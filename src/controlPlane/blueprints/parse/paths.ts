import { Result } from "effect"
import { isHome, pathParts, targetParts } from "../../../contract/domain/filePlan.ts"
import { printable } from "./located.ts"

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

/** A leading `/` is the root of the instance or the container. `orHome` allows the instance folder itself. */
const placePath =
  (orHome: boolean) =>
  (path: string): Result.Result<string, string> => {
    const reason = path === "" ? "names no file" : fault(path)
    if (reason !== undefined) return refuse(path, reason)
    const short = `${path.startsWith("/") ? "/" : ""}${segments(path).join("/")}`
    if (isHome(short)) {
      return orHome ? Result.succeed("/") : refuse(path, "is the instance folder itself; name a place in it")
    }
    return Result.mapBoth(targetParts(short), {
      onFailure: (why) => `the path \`${printable(path, 80)}\` ${why}`,
      onSuccess: () => short
    })
  }

export const targetPath = placePath(false)
/** The target of a mount; `/`: the instance folder itself. */
export const mountTarget = placePath(true)

/** The target of a copy, relative to the instance; `.`: the instance folder itself. */
export const copyTarget = (path: string): Result.Result<string, string> =>
  Result.flatMap(mountTarget(path), (target) =>
    target === "/" ? Result.succeed(".") : Result.map(targetParts(target), (parts) => parts.join("/"))
  )

/** The source of a copy: relative to the data folder, or an absolute path of the host. */
export const copySourcePath = (path: string): Result.Result<string, string> =>
  path.startsWith("/") ? hostPath(path) : instancePath(path)

const MAX_PATTERN = 200

const patternFault = (pattern: string): string | undefined => {
  if (pattern.length > MAX_PATTERN) return `is longer than ${MAX_PATTERN} characters`
  if (/\p{Cc}/u.test(pattern)) return "contains control characters"
  if (pattern.includes("\\")) return "contains a backslash; write /"
  const other = /^!|[[{]/.exec(pattern)?.[0]
  if (other !== undefined)
    return `contains \`${other}\`; only *, ** and ? stand for others, and ? for this one`
  if (/.\/$/.test(pattern)) return "ends with /; the pattern of a folder holds for all below it"
  const names = pattern.replace(/^\//, "").split("/")
  return names.some((name) => name === "" || name === "." || name === "..")
    ? "has an empty name, `.` or `..`"
    : undefined
}

/** Returns a pattern of paths (spec 10.4). Unless it is one of names, it begins with a slash. */
export const filePattern = (pattern: string): Result.Result<string, string> => {
  const reason = patternFault(pattern)
  if (reason !== undefined) return Result.fail(`the pattern \`${printable(pattern, 80)}\` ${reason}`)
  return Result.succeed(pattern.includes("/") && !pattern.startsWith("/") ? `/${pattern}` : pattern)
}

export const hostPath = (path: string): Result.Result<string, string> => {
  const reason = path.startsWith("/") ? fault(path) : "must be absolute"
  return reason === undefined ? Result.succeed(`/${segments(path).join("/")}`) : refuse(path, reason)
}
