import { Data, type PlatformError } from "effect"

/** The sync of a source failed; `reason` is one line, without secrets and without paths of this host. */
export class SyncFailed extends Data.TaggedError("SyncFailed")<{ readonly reason: string }> {
  override get message(): string {
    return this.reason
  }
}

const meanings: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is exceeded",
  EACCES: "permission denied",
  EPERM: "operation not permitted",
  EROFS: "the file system is read-only",
  ENAMETOOLONG: "a name is too long",
  ENOENT: "it does not exist",
  ENOTDIR: "a part of its path is no folder",
  EISDIR: "it is a folder",
  EEXIST: "there is something of that name already",
  EXDEV: "it is on another file system",
  EBUSY: "it is in use"
}

/** Returns why the file system refused an operation, in plain words and without the path. */
export const reasonOf = ({ reason }: PlatformError.PlatformError): string => {
  const cause: unknown = reason.cause
  const code: unknown =
    typeof cause === "object" && cause !== null && "code" in cause ? cause.code : undefined
  return (typeof code === "string" ? (meanings[code] ?? code) : undefined) ?? reason._tag
}

/** Maps an error of the file system to a failed sync: `<what>: <why>`. */
export const cannot =
  (what: string) =>
  (error: PlatformError.PlatformError): SyncFailed =>
    new SyncFailed({ reason: `${what}: ${reasonOf(error)}` })
