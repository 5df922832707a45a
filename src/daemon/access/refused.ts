/** The refusals of accesses to files, as callers see them. */
import { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { type FileError, FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { type IoError, meaningOf } from "../disk/fsio.ts"
import { isNoRoom } from "../disk/remedy.ts"
import type { PathRefused } from "../disk/safePath.ts"

export const noSuchPath = (path: string) =>
  new FileRefused({ status: 404, detail: `no such path: ${path}`, hint: "List its folder." })

export const notAPath = (path: string, why: string) =>
  new FileRefused({
    status: 422,
    detail: `path ${path.slice(0, 200)}: it ${why}`,
    hint: "Send an absolute path such as /plugins/x.jar."
  })

export const forbidden = (path: string, why: string) =>
  new FileRefused({
    status: 403,
    detail: `${path}: ${why}`,
    hint: "The field files of the blueprint says what callers may read and write."
  })

export const conflict = (path: string, why: string, hint = "List its folder, and try again.") =>
  new FileRefused({ status: 409, detail: `${path}: ${why}`, hint })

export const unprocessable = (detail: string, hint: string) => new FileRefused({ status: 422, detail, hint })

export const lacks = (path: string) =>
  unprocessable(`the backup has no ${path}`, "Choose paths that the backup has.")

/** The backup has something where the server has a volume or mount, which is no part of a restore. */
export const covered = (path: string) =>
  conflict(
    path,
    "a volume or mount lies there, and the backup has files of its own there",
    "Send paths that lie beside it."
  )

/** The codes of the system for states of the path that a caller can see and change. */
const conflicts: Readonly<Record<string, string>> = {
  ENOTEMPTY: "the folder is not empty",
  EEXIST: "it exists",
  EBUSY: "something is mounted there",
  EISDIR: "it is a folder",
  ENOTDIR: "one of its folders is a file",
  ELOOP: "a link is on the way",
  EXDEV: "it lies on another file system",
  ETXTBSY: "a program runs from this file"
}

export type AccessError = FileError | PathRefused | IoError

/** Returns the error of an access to `path` as callers see it. */
export const toFileError =
  (path: string) =>
  (error: AccessError): FileError => {
    if (error._tag === "PathRefused") return conflict(path, error.reason)
    if (error._tag !== "IoError") return error
    if (error.code === "ENOENT") return noSuchPath(path)
    if (error.code === "EACCES" || error.code === "EPERM" || error.code === "EROFS") {
      return forbidden(path, meaningOf(error.code) ?? error.message)
    }
    if (isNoRoom(error)) {
      return new FileRefused({ status: 507, detail: error.message, hint: "Delete files, then try again." })
    }
    if (error.code === "ENAMETOOLONG" || error.code === "EINVAL")
      return unprocessable(error.message, "Shorten the name.")
    const why = conflicts[error.code]
    if (why !== undefined) return conflict(path, why)
    return new DaemonRefused({
      status: 500,
      detail: error.message,
      hint: error.next ?? "Look at the files of the server on its node."
    })
  }

/** As {@link toFileError}, of a task on many paths: the error itself names the path. */
export const toTaskError = (error: AccessError): FileError => {
  if (error._tag === "PathRefused") return conflict(error.path, error.reason)
  return error._tag === "IoError" && error.code === "ENOENT"
    ? new FileRefused({ status: 404, detail: error.message, hint: "Look at the files on the node." })
    : toFileError("/")(error)
}
