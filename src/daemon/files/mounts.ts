/**
 * Mounts of instances, made by `mount` and `umount` of util-linux (Debian essential), or by perl where owners are
 * mapped (idmap.ts). Needs CAP_SYS_ADMIN.
 */
import { constants } from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { Deferred, Effect } from "effect"
import { IoError, io, mountsAt, openFile } from "../disk/fsio.ts"
import { spawnChild } from "../runtime/spawnChild.ts"
import { type MappedMount, mappedMount, NOSUID_NODEV, READ_ONLY, type Shown } from "./idmap.ts"

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

/** Where distributions have them; the service's own search path may lack the administrator's folders. */
const PATH =
  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/wrappers/bin:/run/current-system/sw/bin"

/**
 * Runs a tool of the system to its end; returns what the tool prints. `fds`: what `/proc/self/fd/3` and on stand for in
 * the arguments.
 */
export const output = Effect.fnUntraced(function* (
  what: string,
  argv: readonly [string, ...ReadonlyArray<string>],
  fds: ReadonlyArray<FileHandle> = []
) {
  const child = yield* spawnChild(argv, {
    stdio: ["ignore", "pipe", "pipe", ...fds.map((handle) => handle.fd)],
    env: { PATH, LC_ALL: "C" }
  }).pipe(Effect.mapError((error) => new IoError({ code: "ENOSYS", message: `${what}: ${error.message}` })))
  child.process.ref()
  const closed = Deferred.makeUnsafe<void>()
  let [said, printed] = ["", ""]
  child.process.stderr?.on("data", (bytes: Buffer) => {
    if (said.length < 4096) said += bytes.toString()
  })
  child.process.stdout?.on("data", (bytes: Buffer) => {
    if (printed.length < 4096) printed += bytes.toString()
  })
  child.process.once("close", () => Deferred.doneUnsafe(closed, Effect.void))
  const code = yield* Deferred.await(child.exited)
  yield* Deferred.await(closed)
  if (code === 0) return printed
  const [reason = `${argv[0]} exited with ${code}`] = said.trim().split("\n")
  const known = reasons.find(([pattern]) => pattern.test(said))?.[1] ?? "EMOUNT"
  return yield* new IoError({
    code: known,
    message: messages[known] ?? `${what}: ${reason.replace(/^[a-z]+: /, "")}`
  })
}, Effect.uninterruptible)

/** The same, for what the tool does. */
export const run = (...given: Parameters<typeof output>): Effect.Effect<void, IoError> =>
  Effect.asVoid(output(...given))

/** Opens a path to name it for a mount; the scope closes it. What it is, is settled with that. */
export const openToMount = (path: string) => openFile(path, O_PATH | constants.O_NOFOLLOW)

const runMapped = Effect.fnUntraced(function* (
  what: string,
  mount: MappedMount,
  fds: ReadonlyArray<FileHandle>
) {
  const command = mappedMount(mount)
  return yield* command instanceof IoError ? command : run(what, command, fds)
})

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

/**
 * Mounts an overlay at `target`; `name` is what the mount table shows as its source. Layers are handed over open, so
 * that no name of theirs has to be escaped or can come to mean another folder. Without the features that tie an upper
 * layer to its lower ones: those may be replaced by others while nothing is mounted (overlayfs, "Changes to
 * underlying filesystems").
 */
export const mountOverlay = (target: string, layers: OverlayLayers, name: string) => {
  const { lower, upper, work } = layers
  const open = [...lower.map(({ handle }) => handle), upper, work]
  const shown = lower.map((layer) => layer.shown)
  if (shown.some((one) => one !== undefined)) {
    return runMapped(`mount overlay at ${target}`, { target, name, shown, attributes: NOSUID_NODEV }, open)
  }
  const options = [
    `lowerdir=${lower.map((_, index) => at(index)).join(":")}`,
    `upperdir=${at(lower.length)}`,
    `workdir=${at(lower.length + 1)}`,
    "index=off,metacopy=off,redirect_dir=nofollow,xino=off",
    PLAIN
  ]
  return run(
    `mount overlay at ${target}`,
    ["mount", "-i", "-c", "-t", "overlay", "-o", options.join(","), name, target],
    open
  )
}

/**
 * Mounts a file or folder a second time at `target`, without what is mounted in it. `read_only`: for all that look
 * there; `shown`: its files have another owner there.
 */
export const mountAgain = (target: string, source: FileHandle, read_only: boolean, shown?: Shown) => {
  const what = `mount at ${target}`
  if (shown !== undefined) {
    const attributes = read_only ? NOSUID_NODEV + READ_ONLY : NOSUID_NODEV
    return runMapped(what, { target, name: "", shown: [shown], attributes }, [source])
  }
  const options = read_only ? `${PLAIN},ro` : PLAIN
  return run(what, ["mount", "-i", "-c", "--bind", "--make-private", "-o", options, at(0), target], [source])
}

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
