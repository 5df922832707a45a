/** Exports an instance's files by `tar` in GNU format, with permissions, times, links and holes. */
import type { ChildProcess } from "node:child_process"
import * as fs from "node:fs/promises"
import { PassThrough, pipeline } from "node:stream"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, Fiber, Option, type Scope, Stream } from "effect"
import { entryPath, forEachEntry, IoError, io, toIoError } from "../disk/fsio.ts"
import { scopedTool } from "../host/runTool.ts"

export const toolError = (what: string, stderr: string): IoError => {
  if (stderr.includes("No space left on device")) return new IoError({ code: "ENOSPC", message: "disk full" })
  const line = stderr.split("\n").find((one) => one.includes(": ") && !one.includes("Exiting"))
  return new IoError({
    code: "TAR",
    message: `${what}: ${line?.replace(/^\w+: /, "").slice(0, 300) ?? "no reason given"}`
  })
}

/** The folders of an instance by owner, as paths such as `plugins/shared`. */
export interface InstancePaths {
  /** Volumes and mounts shared with other servers, which are not exported. */
  readonly shared: ReadonlyArray<string>
  /** Folders of the instance itself, even if they are mounts. */
  readonly own: ReadonlyArray<string>
}

/** Paths as `tar` gets them, one character per byte. */
interface PathSets {
  readonly shared: ReadonlySet<string>
  readonly own: ReadonlyArray<string>
}

const asNamed = (path: string) => Buffer.from(`./${path}`).toString("latin1")

const isIn = (folders: ReadonlyArray<string>, path: Buffer): boolean => {
  const text = path.toString("latin1")
  return folders.some((folder) => text === folder || text.startsWith(`${folder}/`))
}

/** Small buffers are joined, since each takes 100 bytes beside its own. */
const MOST_PARTS = 2000

/** Returns the names in a folder, each with a NUL after it, and its subfolders. */
const folderNames = Effect.fnUntraced(function* (
  root: string,
  folder: Buffer,
  device: number,
  { own, shared }: PathSets
) {
  const at = entryPath(root, folder)
  const names: Array<Buffer> = []
  let text: Array<Buffer> = [folder, Buffer.from([0])]
  const folders: Array<Buffer> = []
  yield* forEachEntry(
    at,
    Effect.fnUntraced(function* (entry) {
      const path = entryPath(folder, entry.name)
      if (shared.has(path.toString("latin1"))) return
      // Pipes and sockets have no contents; their users recreate them.
      if (entry.isFile() || entry.isSymbolicLink()) text.push(path, Buffer.from([0]))
      if (text.length > MOST_PARTS) {
        names.push(Buffer.concat(text))
        text = []
      }
      if (!entry.isDirectory()) return
      const stats = yield* io(`stat ${path}`, () => fs.lstat(entryPath(root, path)))
      // Other mounts are not part of the instance.
      if (stats.dev === device || isIn(own, path)) folders.push(path)
    })
  )
  return { names: Buffer.concat([...names, ...text]), folders }
})

const namesOf = (root: string, device: number, paths: PathSets) =>
  Stream.paginate([Buffer.from(".")], (pending: ReadonlyArray<Buffer>) => {
    const folder = pending.at(-1)
    if (folder === undefined) return Effect.succeed([[], Option.none()] as const)
    return Effect.map(folderNames(root, folder, device, paths), ({ folders, names }) => {
      const rest = [...pending.slice(0, -1), ...folders.toReversed()]
      return [[names], rest.length === 0 ? Option.none() : Option.some(rest)] as const
    })
  })

/** Writes a chunk and waits until the program has consumed it; returns false if the program stopped reading. */
const write = (child: ChildProcess, chunk: Uint8Array): Effect.Effect<boolean> =>
  Effect.callback<boolean>((resume) => {
    const { stdin } = child
    if (stdin === null || !stdin.writable) return resume(Effect.succeed(false))
    stdin.write(chunk, (error) => resume(Effect.succeed(error === null || error === undefined)))
  })

/** Streams the files below `root`, without shared folders and mounts. If incomplete, it fails after all output. */
export const packFiles = (
  root: string,
  { own, shared }: InstancePaths
): Effect.Effect<Stream.Stream<Uint8Array, IoError>, IoError, Scope.Scope> =>
  Effect.gen(function* () {
    const { dev } = yield* io("the files of the instance", () => fs.lstat(root))
    const tar = yield* scopedTool(
      [
        "tar",
        "--create",
        "--file=-",
        "--format=gnu",
        "--sparse",
        "--hard-dereference",
        "--numeric-owner",
        "--no-recursion",
        "--blocking-factor=128",
        `--directory=${root}`,
        "--null",
        "--files-from=-"
      ],
      { stdio: ["pipe", "pipe", "pipe"] }
    )
    const paths = { shared: new Set(shared.map(asNamed)), own: own.map(asNamed) }
    const nameWriter = yield* Stream.runForEach(namesOf(root, dev, paths), (names) =>
      write(tar.process, names)
    ).pipe(
      Effect.andThen(Effect.sync(() => tar.process.stdin?.end())),
      // Without this, tar would wait for more names.
      Effect.onError(() => Effect.sync(() => tar.process.kill("SIGKILL"))),
      Effect.forkScoped
    )
    const { stdout } = tar.process
    if (stdout === null) return yield* new IoError({ code: "TAR", message: "tar has no output" })
    // Node discards the output of an ended child that has no reader; the PassThrough keeps it.
    const buffered = pipeline(stdout, new PassThrough(), () => {})
    const bytes = NodeStream.fromReadable<Uint8Array, IoError>({
      evaluate: () => buffered,
      onError: (cause) => toIoError("read from tar", cause)
    })
    const whole = Effect.gen(function* () {
      yield* Fiber.join(nameWriter)
      if ((yield* tar.ended) !== 0) return yield* toolError("the files cannot be read", tar.stderr())
    })
    return Stream.concat(bytes, Stream.drain(Stream.fromEffect(whole)))
  })
