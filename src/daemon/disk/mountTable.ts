/** The mount table of the kernel (`/proc/self/mountinfo`, proc(5)). */

export const MOUNT_TABLE = "/proc/self/mountinfo"

export interface MountEntry {
  readonly path: string
  readonly type: string
  /** The device; any text for file systems without one. */
  readonly source: string
  readonly read_only: boolean
  readonly flags: ReadonlyArray<string>
  /** Options of the file system, such as `prjquota`. */
  readonly options: ReadonlyArray<string>
}

/** The kernel escapes blanks and backslashes as three octal digits. */
const unescaped = (text: string): string =>
  Buffer.from(
    text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))),
    "latin1"
  ).toString("utf8")

/** Parses the table, in order of mounting. `text` has one character per byte (latin1), so that no name is damaged. */
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

/** Whether a path is a folder or below it; links of both are resolved. */
export const isIn = (path: string, folder: string): boolean =>
  folder === "/" || path === folder || path.startsWith(`${folder}/`)

/** Returns the mounts at and below a path, in order of mounting. `path`: links resolved. */
export const below = (path: string, table: ReadonlyArray<MountEntry>): ReadonlyArray<MountEntry> =>
  table.filter((entry) => isIn(entry.path, path))

/** Returns the mount of a path. `path`: links resolved. */
export const mountOf = (path: string, table: ReadonlyArray<MountEntry>): MountEntry | undefined =>
  table
    .filter((entry) => isIn(path, entry.path))
    .reduce<MountEntry | undefined>(
      // Of two mounts at the same path, the later one is visible.
      (best, entry) => (best === undefined || entry.path.length >= best.path.length ? entry : best),
      undefined
    )
