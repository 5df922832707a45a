/**
 * The mounts of instances, made by `mount` and `umount` of util-linux (Debian essential), or by perl if owners can be
 * mapped (idmap.ts). Needs CAP_SYS_ADMIN.
 */
import type { SpawnOptions } from "node:child_process"
import { constants } from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { Deferred, Effect } from "effect"
import { IoError, io, mountsAt, openFile } from "../disk/fsio.ts"
import { startTool } from "../process/runTool.ts"
import { mountProgram, NOSUID_NODEV, type ProgramStep, programLine, READ_ONLY, type Shown } from "./idmap.ts"

/**
 * Opens a file or folder without its contents (open(2), O_PATH): a pipe does not block, a device has no side effects.
 */
const O_PATH = 0o10000000
/** Disables devices and set-id programs of servers. */
const SAFE_OPTIONS = "nodev,nosuid"
/** The limit of attempts to unmount a folder. */
const MAX_ROUNDS = 16

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

/** Starts a system tool; `onOutput` receives its standard output. */
const start = Effect.fnUntraced(function* (
  what: string,
  argv: readonly [string, ...ReadonlyArray<string>],
  fds: ReadonlyArray<FileHandle>,
  input: "ignore" | "pipe",
  onOutput: (text: string) => void
) {
  const options: SpawnOptions = { stdio: [input, "pipe", "pipe", ...fds.map((handle) => handle.fd)] }
  const tool = yield* Effect.mapError(
    startTool(argv, options, onOutput),
    (error) => new IoError({ code: "ENOSYS", message: `${what}: ${error.message}` })
  )
  /** Waits for the end; returns the error, or undefined. `what`: the operation. */
  const end = Effect.fnUntraced(function* (what: string) {
    const code = yield* tool.ended
    const stderr = tool.stderr()
    if (code === 0) return undefined
    const [reason = `${argv[0]} exited with ${code}`] = stderr.trim().split("\n")
    const known = reasons.find(([pattern]) => pattern.test(stderr))?.[1] ?? "EMOUNT"
    return new IoError({
      code: known,
      message: messages[known] ?? `${what}: ${reason.replace(/^[a-z]+: /, "")}`
    })
  })
  return { process: tool.process, end }
})

/** Runs a system tool and returns its output. `fds`: the files at `/proc/self/fd/3` and so on in the arguments. */
export const output = Effect.fnUntraced(function* (
  what: string,
  argv: readonly [string, ...ReadonlyArray<string>],
  fds: ReadonlyArray<FileHandle> = []
) {
  let stdout = ""
  const tool = yield* start(what, argv, fds, "ignore", (text) => {
    if (stdout.length < 4096) stdout += text
  })
  const failed = yield* tool.end(what)
  return failed === undefined ? stdout : yield* failed
}, Effect.uninterruptible)

/** Runs a system tool without output. */
export const run = (...given: Parameters<typeof output>): Effect.Effect<void, IoError> =>
  Effect.asVoid(output(...given))

/** Opens the source or layer of a mount for the scope, so that its name cannot change its meaning. */
export const openToMount = (path: string) => openFile(path, O_PATH | constants.O_NOFOLLOW)

const at = (index: number) => `/proc/self/fd/${index + 3}`

/** An open lower layer; `shown`: its owner in the overlay. */
export interface LowerLayer {
  readonly handle: FileHandle
  readonly shown?: Shown | undefined
}

/**
 * The layers of an overlay: `lower` from the top down, never written; `upper` and `work` empty or the overlay's own.
 */
export interface OverlayLayers {
  readonly lower: ReadonlyArray<LowerLayer>
  readonly upper: FileHandle
  readonly work: FileHandle
}

/** Mounts open files, so that no name needs escaping or can change its meaning. */
export interface Mounter {
  /**
   * Mounts an overlay at `target`; `name` is its source in the mount table. Features that bind an upper layer to its
   * lower layers are off, because lower layers may be replaced while nothing is mounted (overlayfs, "Changes to
   * underlying filesystems").
   */
  readonly overlay: (target: string, layers: OverlayLayers, name: string) => Effect.Effect<void, IoError>
  /**
   * Bind-mounts a file or folder at `target`, without mounts in it. `read_only`: for all users; `shown`: the owner
   * there.
   */
  readonly bind: (
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
const bindAt = (target: string) => `mount at ${target}`

/** Mounts with one `mount` process each. It does not map owners: `shown` must be undefined. */
const byMount: Mounter = {
  overlay: (target, layers, name) => {
    const count = layers.lower.length
    const options = [
      `lowerdir=${layers.lower.map((_, index) => at(index)).join(":")}`,
      `upperdir=${at(count)}`,
      `workdir=${at(count + 1)}`,
      "index=off,metacopy=off,redirect_dir=nofollow,xino=off",
      SAFE_OPTIONS
    ]
    const argv = ["mount", "-i", "-c", "-t", "overlay", "-o", options.join(","), name, target] as const
    return run(overlayAt(target), argv, handlesOf(layers))
  },
  bind: (target, source, read_only) => {
    const options = read_only ? `${SAFE_OPTIONS},ro` : SAFE_OPTIONS
    const argv = ["mount", "-i", "-c", "--bind", "--make-private", "-o", options, at(0), target] as const
    return run(bindAt(target), argv, [source])
  }
}

/** Mounts with one process for all mounts (idmap.ts), until the scope ends. The process has the `open` files only. */
const byProgram = Effect.fnUntraced(function* (open: ReadonlyArray<FileHandle>, count: number) {
  const program = mountProgram()
  if (program instanceof IoError) return yield* program
  let ended = false
  let acknowledged = Deferred.makeUnsafe<void>()
  const acknowledge = () => Deferred.doneUnsafe(acknowledged, Effect.void)
  let isMounted = false
  let remaining = count
  const tool = yield* Effect.acquireRelease(
    start("mount", program, open, "pipe", () => {
      isMounted = true
      acknowledge()
    }),
    ({ end, process }) => {
      process.stdin?.end()
      return end("mount")
    }
  )
  tool.process.once("close", () => {
    ended = true
    acknowledge()
  })
  const make = (what: string, step: ProgramStep) =>
    Effect.gen(function* () {
      isMounted = false
      acknowledged = Deferred.makeUnsafe<void>()
      if (!ended) {
        remaining -= 1
        tool.process.stdin?.write(programLine(step))
        // Ends the program after its last mount, in parallel with the acknowledgement.
        if (remaining === 0) tool.process.stdin?.end()
        yield* Deferred.await(acknowledged)
      }
      if (isMounted) return
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
    bind: (target, source, read_only, shown) =>
      make(bindAt(target), {
        target,
        attributes: read_only ? NOSUID_NODEV + READ_ONLY : NOSUID_NODEV,
        sources: [{ source: numberOf(source), shown }]
      })
  }
  return mounter
})

/**
 * Opens a mounter for up to `count` mounts of the `open` files, until the scope ends. `mapped`: this node can map
 * owners.
 */
export const openMounter = (mapped: boolean, open: ReadonlyArray<FileHandle>, count: number) =>
  mapped && count > 0 ? byProgram(open, count) : Effect.succeed(byMount)

const unmount = (what: string, paths: ReadonlyArray<string>, how: ReadonlyArray<string>) =>
  run(what, ["umount", "-i", "-c", ...how, ...paths])

/** Unmounts everything at and below a folder, the last mount first; busy mounts are detached. */
export const unmountBelow = Effect.fnUntraced(function* (path: string) {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const paths = (yield* mountsAt(path)).map((entry) => entry.path).reverse()
    if (paths.length === 0) return
    yield* unmount(`unmount ${path}`, paths, []).pipe(
      Effect.catchIf(
        (error) => error.code === "EBUSY" || round > 0,
        () => unmount(`unmount ${path}`, paths, ["-l"])
      ),
      // Some mounts may be gone; the next round finds the rest.
      Effect.catchIf(
        (error) => round < MAX_ROUNDS - 1 && error.code !== "ENOSYS" && error.code !== "EPERM",
        (error) => Effect.logDebug(error.message)
      )
    )
  }
  if ((yield* mountsAt(path)).length > 0) {
    return yield* new IoError({
      code: "EBUSY",
      message: `unmount ${path}: new mounts keep appearing`
    })
  }
})

/** Whether a path shows an open file, with the owner of the mount. `shown` undefined: its own owner. */
export const isShownAt = Effect.fnUntraced(function* (
  one: FileHandle,
  path: string,
  shown: Shown | undefined
) {
  const other = yield* openToMount(path)
  const [a, b] = [
    yield* io(`stat ${path}`, () => one.stat({ bigint: true })),
    yield* io(`stat ${path}`, () => other.stat({ bigint: true }))
  ]
  if (a.dev !== b.dev || a.ino !== b.ino) return false
  const [uid, gid] = shown === undefined ? [a.uid, a.gid] : [BigInt(shown.as.uid), BigInt(shown.as.gid)]
  return b.uid === uid && b.gid === gid
}, Effect.scoped)
