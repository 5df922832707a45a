/**
 * The script with which a plain process starts, in POSIX sh. It is in an unlinked file at descriptor 3, so that no
 * environment or command line of a remaining process shows variables of a server.
 */
import { readFileSync } from "node:fs"
import { relative } from "node:path"
import { isIn } from "../disk/mountTable.ts"

export interface Cover {
  readonly at: string
  /** The cover: an empty folder, a private folder of the server, a folder in memory, or an empty file. */
  readonly with: "nothing" | keyof Private | "memory" | "no content"
}

/** The private folders of a process, which cover folders of the host. */
export interface Private {
  readonly temporary: string
  readonly log: string
}

/** A folder that is visible at its path or another one in spite of a cover. */
export interface Shown {
  readonly from: string
  readonly to: string
  readonly read_only: boolean
  /** Mount flags that must be kept, such as `noexec`. */
  readonly flags: ReadonlyArray<string>
}

/** A server's view of the file system. */
export interface View extends Private {
  readonly covers: ReadonlyArray<Cover>
  readonly shown: ReadonlyArray<Shown>
  /** The folder with the subfolders `0`, `1`, ... in which covers are assembled. */
  readonly stage: string
}

export interface Script {
  /** Absent if the process has the view of the daemon. */
  readonly view?: View
  /** The limit of processes and threads of the uid. Absent if the limit of the daemon applies. */
  readonly tasks?: number
  /** The program that drops privileges, with its options, or nothing. */
  readonly confine: ReadonlyArray<string>
  readonly cwd: string
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
}

/** The exit code of isolated.sh if the program does not exist. */
export const NO_PROGRAM = 121
/** The size of a writable folder in memory. */
const MEMORY = "size=64m,nr_inodes=4096"
/** The size of a cover that only has mount points. */
const NAMES = "size=256k,nr_inodes=512"

const quoted = (word: string) => `'${word.replaceAll("'", "'\\''")}'`
const line = (words: ReadonlyArray<string>) => words.map(quoted).join(" ")
const mount = (...words: ReadonlyArray<string>) => line(["mount", "-n", "-i", "-c", ...words])

const outermost = (covers: ReadonlyArray<Cover>): ReadonlyArray<Cover> =>
  covers.filter(
    (cover, index) =>
      !covers.some(
        (other, at) =>
          isIn(cover.at, other.at) && (cover.at !== other.at || at < index) && other.with !== "no content"
      )
  )

const putAt = (place: string, cover: Cover, own: Private): string => {
  switch (cover.with) {
    case "nothing":
      return mount("-t", "tmpfs", "-o", `nosuid,nodev,mode=0755,${NAMES}`, "muster", place)
    case "memory":
      return mount("-t", "tmpfs", "-o", `nosuid,nodev,mode=1777,${MEMORY}`, "muster", place)
    case "temporary":
    case "log":
      return mount("--bind", "-o", "nosuid,nodev", own[cover.with], place)
    case "no content":
      return mount("--bind", "/dev/null", place)
  }
}

const show = ({ flags, from, read_only }: Shown, place: string): string => {
  const all = new Set(["nosuid", "nodev", ...(read_only ? ["ro"] : []), ...flags])
  return mount("--rbind", "-o", [...all].join(","), from, place)
}

/** Returns the commands that build the view of a server. Covers are assembled before they are moved. */
const viewCommands = ({ covers, shown, stage, ...own }: View): ReadonlyArray<string> => {
  const build: Array<string> = []
  const put: Array<string> = []
  const move: Array<{ readonly from: string; readonly to: string }> = []
  for (const [index, cover] of outermost(covers).entries()) {
    const inside = shown.filter(({ to }) => isIn(to, cover.at))
    if (inside.length === 0) {
      put.push(putAt(cover.at, cover, own))
      continue
    }
    const place = `${stage}/${index}`
    const placeOf = ({ to }: Shown) => `${place}/${relative(cover.at, to)}`
    build.push(putAt(place, cover, own))
    build.push(`(umask 022 && exec ${line(["mkdir", "-p", "--", ...inside.map(placeOf)])})`)
    build.push(...inside.map((one) => show(one, placeOf(one))))
    move.push({ from: place, to: cover.at })
  }
  // The cover over the stage is moved last.
  const last = move.toSorted((a, b) => Number(isIn(stage, a.to)) - Number(isIn(stage, b.to)))
  return [...build, ...put, ...last.map(({ from, to }) => mount("--move", from, to))]
}

const PROGRAM = readFileSync(new URL("./isolated.sh", import.meta.url), "utf8")

/** Returns the text of the script. A missing program is detected in the view of the server, before the program runs. */
export const scriptText = ({ argv, confine, cwd, env, tasks, view }: Script): string => {
  const [file] = argv
  // `env` takes such a word for a variable.
  const program = file.includes("=") ? ["/bin/sh", "-c", 'exec "$@"', "sh", ...argv] : argv
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  // A subshell: the script needs its own search path.
  const exists = file.includes("/")
    ? line(["test", "-e", file])
    : `( PATH=${quoted(env.PATH ?? "")}; ${line(["command", "-v", file])} > /dev/null )`
  // The option of bash and busybox, then that of dash. Both fail only if the limit of the daemon is lower already.
  const limited =
    tasks === undefined ? [] : [`{ ulimit -u ${tasks} || ulimit -p ${tasks} || :; } 2> /dev/null`]
  const before = [...limited, ...(view === undefined ? [] : viewCommands(view)), line(["cd", "--", cwd])]
  return [
    "{",
    `muster_in_view=${view === undefined ? "" : "true"}`,
    `muster_prepare() { ${before.join(" &&\n")}\n}`,
    `muster_exists() { ${exists}\n}`,
    `muster_exec() { exec ${line([...confine, "env", "-i", "--", ...variables, ...program])}\n}`,
    PROGRAM,
    "}",
    ""
  ].join("\n")
}
