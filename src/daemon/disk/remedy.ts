/** What a person does about a file operation that failed. Pure. */

/** Clauses that go on with `, then start it again`; by the system's code. */
const remedies: Readonly<Record<string, string>> = {
  ENOSPC: "free space on the disk of its data folder",
  EDQUOT: "let it have more, by limits.disk_space or the quota of the disk",
  EACCES: "give the user that the daemon runs as access to it",
  EPERM: "give the user that the daemon runs as the right to do it",
  EROFS: "mount the disk for writing",
  EMFILE: "let the daemon have more open files",
  EIO: "look after the disk"
}

/** What to do; undefined where nothing general can be said. */
export const remedyOf = (error: { readonly code?: string; readonly next?: string }): string | undefined =>
  error.next ?? remedies[error.code ?? ""]

/** Whether it is what a server is made by that is wrong: no second attempt can help. */
export const isForGood = (error: { readonly code?: string; readonly next?: string }): boolean =>
  error.code === "REFUSED" && error.next === undefined

/** A message without the paths of this machine: what lies in the data folder is named from there. */
export const fromDataFolder = (message: string, data_dir: string): string =>
  message.replaceAll(`${data_dir}/`, "").replaceAll(data_dir, "the data folder")
