/**
 * The script that a plain process begins as, in POSIX sh. It lies in a file that has no name any more, at descriptor 3,
 * so that no environment and no command line of a process that stays holds a variable of a server. Pure.
 */
import { relative } from "node:path"
import { isIn } from "../disk/mountTable.ts"

/** A place of the machine that a server sees something else at. */
export interface Cover {
  /** Links resolved. */
  readonly at: string
  /** An empty folder, the temporary folder of the run, a folder in memory, or a file without content. */
  readonly with: "nothing" | "temporary" | "memory" | "no content"
}

/** A folder that is seen at its place, or another, though something covers that. */
export interface Shown {
  /** Links resolved. */
  readonly from: string
  readonly to: string
  readonly read_only: boolean
  /** Mount flags that have to stay, such as `noexec`. */
  readonly flags: ReadonlyArray<string>
}

/** The view that a server has of the file system of the machine. */
export interface View {
  readonly covers: ReadonlyArray<Cover>
  readonly shown: ReadonlyArray<Shown>
  /** Folder with the folders `0`, `1`, ... at which covers are put together. */
  readonly stage: string
  readonly temporary: string
}

export interface Script {
  /** Absent: the view of the daemon. */
  readonly view?: View
  /** The program that takes rights away, with its options; empty: no right is taken away. */
  readonly confine: ReadonlyArray<string>
  readonly cwd: string
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
}

/** Bytes of a folder in memory that servers can write to. */
const MEMORY = "size=64m,nr_inodes=4096"
/** Enough for the names of what is shown in it. */
const NAMES = "size=256k,nr_inodes=512"

const quoted = (word: string) => `'${word.replaceAll("'", "'\\''")}'`
const line = (words: ReadonlyArray<string>) => words.map(quoted).join(" ")
const mount = (...words: ReadonlyArray<string>) => line(["mount", "-n", "-i", "-c", ...words])

/** Covers that no other one covers. */
export const outermost = (covers: ReadonlyArray<Cover>): ReadonlyArray<Cover> =>
  covers.filter(
    (cover, index) =>
      !covers.some(
        (other, at) =>
          isIn(cover.at, other.at) && (cover.at !== other.at || at < index) && other.with !== "no content"
      )
  )

const putAt = (place: string, cover: Cover, temporary: string): string => {
  switch (cover.with) {
    case "nothing":
      return mount("-t", "tmpfs", "-o", `nosuid,nodev,mode=0755,${NAMES}`, "muster", place)
    case "memory":
      return mount("-t", "tmpfs", "-o", `nosuid,nodev,mode=1777,${MEMORY}`, "muster", place)
    case "temporary":
      return mount("--bind", "-o", "nosuid,nodev", temporary, place)
    case "no content":
      return mount("--bind", "/dev/null", place)
  }
}

const show = ({ flags, from, read_only }: Shown, place: string): string => {
  const all = new Set(["nosuid", "nodev", ...(read_only ? ["ro"] : []), ...flags])
  return mount("--rbind", "-o", [...all].join(","), from, place)
}

/** The commands that make the view, in the namespaces of the server. Everything is put together before it is moved. */
export const viewCommands = ({ covers, shown, stage, temporary }: View): ReadonlyArray<string> => {
  const build: Array<string> = []
  const put: Array<string> = []
  const move: Array<{ readonly from: string; readonly to: string }> = []
  for (const [index, cover] of outermost(covers).entries()) {
    const inside = shown.filter(({ to }) => isIn(to, cover.at))
    if (inside.length === 0) {
      put.push(putAt(cover.at, cover, temporary))
      continue
    }
    const place = `${stage}/${index}`
    const placeOf = ({ to }: Shown) => `${place}/${relative(cover.at, to)}`
    build.push(putAt(place, cover, temporary))
    build.push(`(umask 022 && exec ${line(["mkdir", "-p", "--", ...inside.map(placeOf)])})`)
    build.push(...inside.map((one) => show(one, placeOf(one))))
    move.push({ from: place, to: cover.at })
  }
  // What covers the stage comes last.
  const last = move.toSorted((a, b) => Number(isIn(stage, a.to)) - Number(isIn(stage, b.to)))
  return [...build, ...put, ...last.map(({ from, to }) => mount("--move", from, to))]
}

/**
 * The text of the script. It reads a line of itself, as {@link hasBegun} sees, once the program is about to run. With a
 * view, the shell that runs the script stays as process 1 of its namespace: signals that have no handler do not reach
 * process 1, so the program must be another.
 */
export const scriptText = ({ argv, confine, cwd, env, view }: Script): string => {
  const [file] = argv
  // `env` takes such a word for a variable.
  const program = file.includes("=") ? ["/bin/sh", "-c", 'exec "$@"', "sh", ...argv] : argv
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const words = line([...confine, "env", "-i", "--", ...variables, ...program])
  const before = [...(view === undefined ? [] : viewCommands(view)), line(["cd", "--", cwd])]
  return [
    // Read as a whole before any of it is run: the file is emptied as soon as the program is about to run.
    "{",
    `${before.join(" &&\n")} || { echo "[Muster cannot isolate the process, see above]" >&2; exit 125; }`,
    "read -r begun <&3",
    "exec 3<&-",
    ...(view === undefined
      ? [`exec ${words}`]
      : [
          "trap : HUP INT QUIT TERM USR1 USR2 PIPE",
          "exec 4>&2 2>/dev/null",
          `( exec ${words} 2>&4 4>&- )`,
          'exit "$?"'
        ]),
    "}",
    ""
  ].join("\n")
}
