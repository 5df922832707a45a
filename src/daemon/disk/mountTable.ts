/** What is mounted where, as the kernel says it (`/proc/self/mountinfo`, proc(5)). */

export const MOUNT_TABLE = "/proc/self/mountinfo"

/** One mount that this process sees. */
export interface MountEntry {
  /** Where it is mounted, links resolved. */
  readonly path: string
  /** `overlay`, `ext4`, ... */
  readonly type: string
  /** What was named as the device; any text for file systems without one. */
  readonly source: string
  readonly read_only: boolean
  /** Flags of the mount, such as `noexec`. */
  readonly flags: ReadonlyArray<string>
  /** Options of the file system itself, such as `prjquota`. */
  readonly options: ReadonlyArray<string>
}

/** The kernel writes blanks and backslashes of paths as three octal digits. */
const unescaped = (text: string): string =>
  Buffer.from(
    text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))),
    "latin1"
  ).toString("utf8")

/** Reads the table, in order of mounting. `text` has one character a byte (latin1), so that no name is damaged. */
export const parseMountTable = (text: string): ReadonlyArray<MountEntry> =>
  text.split("\n").flatMap((line) => {
    const [before, after] = line.split(" - ")
    const [, , , , path, options] = before?.split(" ") ?? []
    const [type, source, own] = after?.split(" ") ?? []
    if (path === undefined || options === undefined || type === undefined || source === undefined) return []
    const flags = options.split(",")
    const read_only = flags.includes("ro")
    return [
      {
        path: unescaped(path),
        type,
        source: unescaped(source),
        read_only,
        flags,
        options: own?.split(",") ?? []
      }
    ]
  })

/** Whether a path is a folder or lies in it; both with their links resolved. */
export const isIn = (path: string, folder: string): boolean =>
  folder === "/" || path === folder || path.startsWith(`${folder}/`)

/** The mounts at a path and below it, in order of mounting. `path`: links resolved. */
export const below = (path: string, table: ReadonlyArray<MountEntry>): ReadonlyArray<MountEntry> =>
  table.filter((entry) => isIn(entry.path, path))

/** The mount that a path lies in. `path`: links resolved. */
export const mountOf = (path: string, table: ReadonlyArray<MountEntry>): MountEntry | undefined =>
  table
    .filter((entry) => isIn(path, entry.path))
    .reduce<MountEntry | undefined>(
      // Of two at the same place the later one counts.
      (best, entry) => (best === undefined || entry.path.length >= best.path.length ? entry : best),
      undefined
    )
