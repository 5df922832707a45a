/**
 * The files of an instance on their way to another node: a stream of the format of GNU tar, made by the system's `tar`,
 * so that permissions, times, links and holes in files survive. `unpack.ts` is the way back.
 */
import { type ChildProcess, spawn } from "node:child_process"
import type { Dirent } from "node:fs"
import * as fs from "node:fs/promises"
import { PassThrough, pipeline } from "node:stream"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Deferred, Effect, Fiber, Option, type Scope, Stream } from "effect"
import { IoError, io, toIoError } from "../disk/fsio.ts"

/** Nothing of the service's own environment: `TAR_OPTIONS` would change what is done. */
const environment = { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", LC_ALL: "C" }
/** Bytes of standard error that are kept. */
const MOST_SAID = 4096

interface Tool {
  readonly process: ChildProcess
  /** Its exit code, once all that it has said was read; null: a signal ended it. */
  readonly ended: Effect.Effect<number | null, IoError>
  readonly gone: Effect.Effect<void>
  /** What it has said last. */
  readonly said: () => string
}

/** Runs a program of the system until the scope closes. */
export const tool = (
  name: string,
  args: ReadonlyArray<string>,
  stdin: "pipe" | "ignore"
): Effect.Effect<Tool, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(name, args, { env: environment, stdio: [stdin, "pipe", "pipe"] })
      const closed = Deferred.makeUnsafe<number | null, IoError>()
      const gone = Deferred.makeUnsafe<void>()
      let said = ""
      // What it does not take, its exit code explains.
      child.stdin?.on("error", () => {})
      child.stderr?.setEncoding("utf8").on("data", (piece: string) => {
        said = (said + piece).slice(-MOST_SAID)
      })
      child.once("error", (cause) => {
        Deferred.doneUnsafe(closed, Effect.fail(toIoError(`cannot run ${name}`, cause)))
        Deferred.doneUnsafe(gone, Effect.void)
      })
      child.once("exit", () => Deferred.doneUnsafe(gone, Effect.void))
      child.once("close", (code) => Deferred.doneUnsafe(closed, Effect.succeed(code)))
      const ended = Deferred.await(closed)
      return { process: child, ended, gone: Deferred.await(gone), said: () => said }
    }),
    (it) => {
      it.process.kill("SIGKILL")
      return it.gone
    }
  )

/** What a program died of, in its own words. */
export const failureOf = (what: string, { said }: Tool): IoError => {
  const text = said()
  if (text.includes("No space left on device")) return new IoError({ code: "ENOSPC", message: "disk full" })
  const line = text.split("\n").find((one) => one.includes(": ") && !one.includes("Exiting"))
  return new IoError({
    code: "TAR",
    message: `${what}: ${line?.replace(/^\w+: /, "").slice(0, 300) ?? "no reason was given"}`
  })
}

const slash = Buffer.from("/")
const join = (folder: Buffer, name: Buffer) => Buffer.concat([folder, slash, name])

/** Which folders of an instance are whose, by paths such as `plugins/shared`. */
export interface InstancePaths {
  /** Of volumes and mounts that others have too: nothing of them moves. */
  readonly shared: ReadonlyArray<string>
  /** The instance's own, also where they are mounts. */
  readonly own: ReadonlyArray<string>
}

/** Paths as `tar` is told them, one character a byte. */
interface PathSets {
  readonly shared: ReadonlySet<string>
  readonly own: ReadonlyArray<string>
}

const asNamed = (path: string) => Buffer.from(`./${path}`).toString("latin1")

const isIn = (folders: ReadonlyArray<string>, path: Buffer): boolean => {
  const text = path.toString("latin1")
  return folders.some((folder) => text === folder || text.startsWith(`${folder}/`))
}

/** Names of one folder with a NUL after each, and the folders in it. */
const folderNames = Effect.fnUntraced(function* (
  root: string,
  folder: Buffer,
  device: number,
  { own, shared }: PathSets
) {
  const at = join(Buffer.from(root), folder)
  const entries: ReadonlyArray<Dirent<Buffer>> = yield* io(`read folder ${folder}`, () =>
    fs.readdir(at, { withFileTypes: true, encoding: "buffer" })
  )
  const names: Array<Buffer> = [folder, Buffer.from([0])]
  const folders: Array<Buffer> = []
  for (const entry of entries) {
    const path = join(folder, entry.name)
    if (shared.has(path.toString("latin1"))) continue
    // Pipes and sockets hold nothing: who needs them makes them anew.
    if (entry.isFile() || entry.isSymbolicLink()) names.push(path, Buffer.from([0]))
    if (!entry.isDirectory()) continue
    const stats = yield* io(`look at ${path}`, () => fs.lstat(join(Buffer.from(root), path)))
    // What somebody has mounted there is not the instance's.
    if (stats.dev === device || isIn(own, path)) folders.push(path)
  }
  return { names: Buffer.concat(names), folders }
})

/** Every name of the instance: a folder, what is in it, then its folders, one after the other. */
const namesOf = (root: string, device: number, paths: PathSets) =>
  Stream.paginate([Buffer.from(".")], (pending: ReadonlyArray<Buffer>) => {
    const folder = pending.at(-1)
    if (folder === undefined) return Effect.succeed([[], Option.none()] as const)
    return Effect.map(folderNames(root, folder, device, paths), ({ folders, names }) => {
      const rest = [...pending.slice(0, -1), ...folders.toReversed()]
      return [[names], rest.length === 0 ? Option.none() : Option.some(rest)] as const
    })
  })

/** Writes a chunk and waits until the program has taken it. False: it does not read any more. */
const write = (child: ChildProcess, chunk: Uint8Array): Effect.Effect<boolean> =>
  Effect.callback<boolean>((resume) => {
    const { stdin } = child
    if (stdin === null || !stdin.writable) return resume(Effect.succeed(false))
    stdin.write(chunk, (error) => resume(Effect.succeed(error === null || error === undefined)))
  })

/**
 * The files below `root`, without those that are shared, and without what else is mounted there. Fails where it cannot
 * be whole, then after everything that `tar` has said.
 */
export const packFiles = (
  root: string,
  { own, shared }: InstancePaths
): Effect.Effect<Stream.Stream<Uint8Array, IoError>, IoError, Scope.Scope> =>
  Effect.gen(function* () {
    const { dev } = yield* io("the files of the instance", () => fs.lstat(root))
    const tar = yield* tool(
      "tar",
      [
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
      "pipe"
    )
    const paths = { shared: new Set(shared.map(asNamed)), own: own.map(asNamed) }
    const named = yield* Stream.runForEach(namesOf(root, dev, paths), (names) =>
      write(tar.process, names)
    ).pipe(
      Effect.andThen(Effect.sync(() => tar.process.stdin?.end())),
      // It would wait for more names.
      Effect.onError(() => Effect.sync(() => tar.process.kill("SIGKILL"))),
      Effect.forkScoped
    )
    const { stdout } = tar.process
    if (stdout === null) return yield* new IoError({ code: "TAR", message: "tar has no output" })
    // A pipe of a child that ends before anybody reads is emptied; what has passed it waits.
    const waiting = pipeline(stdout, new PassThrough(), () => {})
    const bytes = NodeStream.fromReadable<Uint8Array, IoError>({
      evaluate: () => waiting,
      onError: (cause) => toIoError("read from tar", cause)
    })
    const whole = Effect.gen(function* () {
      yield* Fiber.join(named)
      if ((yield* tar.ended) !== 0) return yield* failureOf("the files cannot be read", tar)
    })
    return Stream.concat(bytes, Stream.drain(Stream.fromEffect(whole)))
  })
