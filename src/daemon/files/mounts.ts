/**
 * Mounts of instances, made by `mount` and `umount` of util-linux (Debian essential), or by perl where owners can be
 * mapped (idmap.ts). Needs CAP_SYS_ADMIN.
 */
import { constants } from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { Deferred, Effect } from "effect"
import { IoError, io, mountsAt, openFile } from "../disk/fsio.ts"
import { spawnChild } from "../runtime/spawnChild.ts"
import { mountProgram, NOSUID_NODEV, type ProgramStep, programLine, READ_ONLY, type Shown } from "./idmap.ts"

/** Opens a file or folder to name it only (open(2), O_PATH): a pipe does not block, a device does not notice. */
const O_PATH = 0o10000000
/** Servers bring no devices and no programs that change the user. */
const PLAIN = "nodev,nosuid"
/** How often mounts that keep coming back are taken away. */
const ROUNDS = 16

const reasons: ReadonlyArray<readonly [RegExp, string]> = [
  [/no space left/i, "ENOSPC"],
  [/quota exceeded/i, "EDQUOT"],
  [/permission denied|must be superuser|operation not permitted/i, "EPERM"],
  [/busy/i, "EBUSY"]
]

const messages: Readonly<Record<string, string>> = {
  ENOSPC: "disk full",
  EPERM: "this process may not mount (CAP_SYS_ADMIN)"
}

/** A tool of the system that runs; `heard` is told what it prints. */
const start = Effect.fnUntraced(function* (
  what: string,
  argv: readonly [string, ...ReadonlyArray<string>],
  fds: ReadonlyArray<FileHandle>,
  input: "ignore" | "pipe",
  heard: (text: string) => void
) {
  const child = yield* spawnChild(argv, {
    stdio: [input, "pipe", "pipe", ...fds.map((handle) => handle.fd)]
  }).pipe(Effect.mapError((error) => new IoError({ code: "ENOSYS", message: `${what}: ${error.message}` })))
  child.process.ref()
  const closed = Deferred.makeUnsafe<void>()
  let said = ""
  child.process.stderr?.on("data", (bytes: Buffer) => {
    if (said.length < 4096) said += bytes.toString()
  })
  child.process.stdout?.on("data", (bytes: Buffer) => heard(bytes.toString()))
  child.process.once("close", () => Deferred.doneUnsafe(closed, Effect.void))
  /** Its end, and what went wrong; undefined where nothing has. `what`: was done. */
  const end = Effect.fnUntraced(function* (what: string) {
    const code = yield* Deferred.await(child.exited)
    yield* Deferred.await(closed)
    if (code === 0) return undefined
    const [reason = `${argv[0]} exited with ${code}`] = said.trim().split("\n")
    const known = reasons.find(([pattern]) => pattern.test(said))?.[1] ?? "EMOUNT"
    return new IoError({
      code: known,
      message: messages[known] ?? `${what}: ${reason.replace(/^[a-z]+: /, "")}`
    })
  })
  return { process: child.process, end }
})

/**
 * Runs a tool of the system to its end; returns what the tool prints. `fds`: what `/proc/self/fd/3` and on stand for in
 * the arguments.
 */
export const output = Effect.fnUntraced(function* (
  what: string,
  argv: readonly [string, ...ReadonlyArray<string>],
  fds: ReadonlyArray<FileHandle> = []
) {
  let printed = ""
  const tool = yield* start(what, argv, fds, "ignore", (text) => {
    if (printed.length < 4096) printed += text
  })
  const failed = yield* tool.end(what)
  return failed === undefined ? printed : yield* failed
}, Effect.uninterruptible)

/** The same, for what the tool does. */
export const run = (...given: Parameters<typeof output>): Effect.Effect<void, IoError> =>
  Effect.asVoid(output(...given))

/** Opens a path to name it for a mount; the scope closes it. What it is, is settled with that. */
export const openToMount = (path: string) => openFile(path, O_PATH | constants.O_NOFOLLOW)

const at = (index: number) => `/proc/self/fd/${index + 3}`

/** A lower layer, open; `shown`: its files have another owner in the overlay. */
export interface LowerLayer {
  readonly handle: FileHandle
  readonly shown?: Shown | undefined
}

/** Layers of an overlay: `lower` from the uppermost down, none of them ever written; `upper` and `work` empty or its own. */
export interface OverlayLayers {
  readonly lower: ReadonlyArray<LowerLayer>
  readonly upper: FileHandle
  readonly work: FileHandle
}

/** Makes mounts of what is open, so that no name of it has to be escaped or can come to mean something else. */
export interface Mounter {
  /**
   * Mounts an overlay at `target`; `name` is what the mount table shows as its source. Without the features that tie an
   * upper layer to its lower ones: those may be replaced by others while nothing is mounted (overlayfs, "Changes to
   * underlying filesystems").
   */
  readonly overlay: (target: string, layers: OverlayLayers, name: string) => Effect.Effect<void, IoError>
  /**
   * Mounts a file or folder a second time at `target`, without what is mounted in it. `read_only`: for all that look
   * there; `shown`: its files have another owner there.
   */
  readonly again: (
    target: string,
    source: FileHandle,
    read_only: boolean,
    shown: Shown | undefined
  ) => Effect.Effect<void, IoError>
}

export const handlesOf = ({ lower, upper, work }: OverlayLayers): ReadonlyArray<FileHandle> => [
  ...lower.map(({ handle }) => handle),
  upper,
  work
]

const overlayAt = (target: string) => `mount overlay at ${target}`
const againAt = (target: string) => `mount at ${target}`

/** By `mount`, each a process of its own. It maps no owners: nothing may be `shown`. */
const byMount: Mounter = {
  overlay: (target, layers, name) => {
    const count = layers.lower.length
    const options = [
      `lowerdir=${layers.lower.map((_, index) => at(index)).join(":")}`,
      `upperdir=${at(count)}`,
      `workdir=${at(count + 1)}`,
      "index=off,metacopy=off,redirect_dir=nofollow,xino=off",
      PLAIN
    ]
    const argv = ["mount", "-i", "-c", "-t", "overlay", "-o", options.join(","), name, target] as const
    return run(overlayAt(target), argv, handlesOf(layers))
  },
  again: (target, source, read_only) => {
    const options = read_only ? `${PLAIN},ro` : PLAIN
    const argv = ["mount", "-i", "-c", "--bind", "--make-private", "-o", options, at(0), target] as const
    return run(againAt(target), argv, [source])
  }
}

/** One process for all that is mounted (idmap.ts), until the scope ends. It has the files `open`, and no others. */
const byProgram = Effect.fnUntraced(function* (open: ReadonlyArray<FileHandle>, count: number) {
  const program = mountProgram()
  if (program instanceof IoError) return yield* program
  let ended = false
  let asked = Deferred.makeUnsafe<void>()
  const answer = () => Deferred.doneUnsafe(asked, Effect.void)
  let made = false
  let left = count
  const tool = yield* Effect.acquireRelease(
    start("mount", program, open, "pipe", () => {
      made = true
      answer()
    }),
    ({ end, process }) => {
      process.stdin?.end()
      return end("mount")
    }
  )
  tool.process.once("close", () => {
    ended = true
    answer()
  })
  // What cannot be written was not read to its end: how the program ended says why.
  tool.process.stdin?.on("error", () => {})
  const make = (what: string, step: ProgramStep) =>
    Effect.gen(function* () {
      made = false
      asked = Deferred.makeUnsafe<void>()
      if (!ended) {
        left -= 1
        tool.process.stdin?.write(programLine(step))
        // It ends by itself after the last, while that is answered.
        if (left === 0) tool.process.stdin?.end()
        yield* Deferred.await(asked)
      }
      if (made) return
      const failed = yield* tool.end(what)
      return yield* failed ?? new IoError({ code: "EMOUNT", message: `${what}: the program ended early` })
    }).pipe(Effect.uninterruptible)
  const numberOf = (handle: FileHandle) => open.indexOf(handle) + 3
  const mounter: Mounter = {
    overlay: (target, { lower, upper, work }, name) =>
      make(overlayAt(target), {
        target,
        attributes: NOSUID_NODEV,
        overlay: { name, upper: numberOf(upper), work: numberOf(work) },
        sources: lower.map(({ handle, shown }) => ({ source: numberOf(handle), shown }))
      }),
    again: (target, source, read_only, shown) =>
      make(againAt(target), {
        target,
        attributes: read_only ? NOSUID_NODEV + READ_ONLY : NOSUID_NODEV,
        sources: [{ source: numberOf(source), shown }]
      })
  }
  return mounter
})

/**
 * For so many mounts of what is `open`, or fewer, until the scope ends. `mapped`: owners can be mapped on this node.
 */
export const openMounter = (mapped: boolean, open: ReadonlyArray<FileHandle>, count: number) =>
  mapped && count > 0 ? byProgram(open, count) : Effect.succeed(byMount)

const unmount = (what: string, paths: ReadonlyArray<string>, how: ReadonlyArray<string>) =>
  run(what, ["umount", "-i", "-c", ...how, ...paths])

/** Takes away all that is mounted at a folder and below it, the last first; what is in use vanishes from here all the same. */
export const unmountBelow = Effect.fnUntraced(function* (path: string) {
  for (let round = 0; round < ROUNDS; round++) {
    const paths = (yield* mountsAt(path)).map((entry) => entry.path).reverse()
    if (paths.length === 0) return
    yield* unmount(`unmount ${path}`, paths, []).pipe(
      Effect.catchIf(
        (error) => error.code === "EBUSY" || round > 0,
        () => unmount(`unmount ${path}`, paths, ["-l"])
      ),
      // Some of them may have gone: the next round says which have not.
      Effect.catchIf(
        (error) => round < ROUNDS - 1 && error.code !== "ENOSYS" && error.code !== "EPERM",
        (error) => Effect.logDebug(error.message)
      )
    )
  }
  if ((yield* mountsAt(path)).length > 0) {
    return yield* new IoError({
      code: "EBUSY",
      message: `unmount ${path}: something is mounted there again and again`
    })
  }
})

/**
 * Whether a path shows an open file: the same file, with the owner that the mount gives it. `shown` undefined: its
 * own.
 */
export const isShownAt = Effect.fnUntraced(function* (
  one: FileHandle,
  path: string,
  shown: Shown | undefined
) {
  const other = yield* openToMount(path)
  const [a, b] = [
    yield* io(`look at ${path}`, () => one.stat({ bigint: true })),
    yield* io(`look at ${path}`, () => other.stat({ bigint: true }))
  ]
  if (a.dev !== b.dev || a.ino !== b.ino) return false
  const [uid, gid] = shown === undefined ? [a.uid, a.gid] : [BigInt(shown.as.uid), BigInt(shown.as.gid)]
  return b.uid === uid && b.gid === gid
}, Effect.scoped)
