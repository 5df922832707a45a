/** The mounts of instances, by the helper if it maps owners, else by `mount` (util-linux). Needs CAP_SYS_ADMIN. */
import { type BigIntStats, closeSync, constants, fstatSync, openSync } from "node:fs"
import { Effect } from "effect"
import { inScope } from "../../shared/work/inScope.ts"
import { IoError, ioSync, mountsAt } from "../disk/fsio.ts"
import { Helper, type Program, repeatable } from "../helper/Helper.ts"
import { runProgram } from "../host/runTool.ts"
import type { RunUser } from "../runtime/Runtime.ts"

export interface Shown {
  readonly owner: RunUser
  readonly as: RunUser
}

/** Unset if the files have the owner already. */
export const shownAs = (owner: RunUser, as: RunUser): Shown | undefined =>
  owner.uid === as.uid && owner.gid === as.gid ? undefined : { owner, as }

/** Attributes of a mount (mount_setattr(2)). */
const READ_ONLY = 1
const NOSUID_NODEV = 2 + 4

/** Root is mapped to itself, so that the daemon can make files there and change their owner. */
const mapOf = (from: number, to: number): string =>
  from === 0 || to === 0 ? `${from} ${to} 1` : `${from} ${to} 1\n0 0 1`

const mapsOf = (shown: Shown | undefined): ReadonlyArray<string> =>
  shown === undefined
    ? ["", ""]
    : [mapOf(shown.owner.uid, shown.as.uid), mapOf(shown.owner.gid, shown.as.gid)]

interface MountRequest {
  readonly target: string
  /** {@link READ_ONLY}, {@link NOSUID_NODEV} */
  readonly attributes: number
  /** Unset if the source itself is mounted. */
  readonly overlay?: { readonly name: string; readonly upper: number; readonly work: number }
  /** Without `shown`, owners are not mapped. */
  readonly sources: ReadonlyArray<{ readonly source: number; readonly shown: Shown | undefined }>
}

const mountWords = ({ attributes, overlay, sources, target }: MountRequest): ReadonlyArray<string> =>
  [
    ...[attributes, target, overlay?.name ?? "", overlay?.upper ?? "", overlay?.work ?? ""],
    ...sources.flatMap(({ shown, source }) => [source, ...mapsOf(shown)])
  ].map(String)

/** Opens a file or folder without its contents (open(2), O_PATH): no pipe blocks, no device has side effects. */
const TO_MOUNT = 0o10000000 | constants.O_NOFOLLOW
/** Disables devices and set-id programs of servers. */
const SAFE_OPTIONS = "nodev,nosuid"
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

const failureOf = (what: string, program: string, code: number, errors: string): IoError | undefined => {
  if (code === 0) return undefined
  const [reason = ""] = errors.trim().split("\n")
  const known = reasons.find(([pattern]) => pattern.test(errors))?.[1] ?? "EMOUNT"
  const text = reason === "" ? `${program} exited with ${code}` : reason.replace(/^[a-z]+: /, "")
  return new IoError({ code: known, message: messages[known] ?? `${what}: ${text}` })
}

/** Runs a system tool and returns its output; `what` names the operation in messages. */
export const output = Effect.fnUntraced(function* (
  what: string,
  argv: readonly [Program, ...ReadonlyArray<string>]
) {
  const { code, stderr, stdout } = yield* Effect.mapError(
    runProgram(argv),
    (error) => new IoError({ code: "ENOSYS", message: `${what}: ${error.message}` })
  )
  const failed = failureOf(what, argv[0], code, stderr)
  return failed === undefined ? stdout : yield* failed
}, Effect.uninterruptible)

export const run = (...given: Parameters<typeof output>): Effect.Effect<void, IoError> =>
  Effect.asVoid(output(...given))

/** An open file or folder, for its place and its stats only. */
export interface OpenPath {
  readonly fd: number
  readonly stats: BigIntStats
}

/**
 * Opens the source or layer of a mount for the scope, so that its name cannot change its meaning. It is opened in place,
 * without its contents: threads took 0.5 ms of a creation.
 */
export const openToMount = Effect.fnUntraced(function* (path: string) {
  const fd = yield* inScope(
    ioSync(`open ${path}`, () => openSync(path, TO_MOUNT)),
    (opened) => Effect.sync(() => closeSync(opened))
  )
  return {
    fd,
    stats: yield* ioSync(`stat ${path}`, () => fstatSync(fd, { bigint: true }))
  } satisfies OpenPath
})

/** The path of an open file for other processes of this user. */
const at = ({ fd }: OpenPath) => `/proc/${process.pid}/fd/${fd}`

/** An open lower layer; `shown`: its owner in the overlay. */
export interface LowerLayer {
  readonly handle: OpenPath
  readonly shown?: Shown | undefined
}

/** The layers of an overlay: `lower` from the top down, never written; `upper` and `work` for it alone. */
export interface OverlayLayers {
  readonly lower: ReadonlyArray<LowerLayer>
  readonly upper: OpenPath
  readonly work: OpenPath
}

const overlayAt = (target: string) => `mount overlay at ${target}`
const bindAt = (target: string) => `mount at ${target}`

/** Makes a mount; if the helper was killed, what it may have mounted is removed first. */
const make = (what: string, request: MountRequest): Effect.Effect<void, IoError> => {
  const words = mountWords(request)
  return Effect.gen(function* () {
    const { code, errors } = yield* (yield* Helper).request("mount", words)
    const failed = failureOf(what, "the helper", code, errors)
    if (failed !== undefined) return yield* failed
  }).pipe(
    Effect.tapErrorTag("HelperLost", () => unmountBelow(request.target)),
    Effect.retry({ times: 1, while: ({ _tag }) => _tag === "HelperLost" }),
    Effect.catchTags({
      HelperLost: () => new IoError({ code: "EINTR", message: `${what}: the helper was killed` }),
      HelperUnavailable: () =>
        new IoError({ code: "ENOSYS", message: `${what}: the helper cannot run (perl)` })
    }),
    Effect.uninterruptible
  )
}

/** Mounts open files, so that no name needs escaping or can change its meaning. */
const byHelper = {
  /**
   * Mounts an overlay, named in the mount table. Features that bind its layers are off, because lower layers may be
   * replaced while nothing is mounted (overlayfs, "Changes to underlying filesystems").
   */
  overlay: (target: string, { lower, upper, work }: OverlayLayers, name: string) =>
    make(overlayAt(target), {
      target,
      attributes: NOSUID_NODEV,
      overlay: { name, upper: upper.fd, work: work.fd },
      sources: lower.map(({ handle, shown }) => ({ source: handle.fd, shown }))
    }),
  /** Bind-mounts at `target`, without mounts in it. `read_only` is for all users, and `shown` is the owner there. */
  bind: (target: string, source: OpenPath, read_only: boolean, shown: Shown | undefined) =>
    make(bindAt(target), {
      target,
      attributes: read_only ? NOSUID_NODEV + READ_ONLY : NOSUID_NODEV,
      sources: [{ source: source.fd, shown }]
    })
}
export type Mounter = typeof byHelper

/** Mounts by the program `mount`, which does not map owners, so `shown` must be unset. */
const byMount: Mounter = {
  overlay: (target, { lower, upper, work }, name) => {
    const options = [
      `lowerdir=${lower.map(({ handle }) => at(handle)).join(":")}`,
      `upperdir=${at(upper)}`,
      `workdir=${at(work)}`,
      "index=off,metacopy=off,redirect_dir=nofollow,xino=off",
      SAFE_OPTIONS
    ]
    const argv = ["mount", "-i", "-c", "-t", "overlay", "-o", options.join(","), name, target] as const
    return run(overlayAt(target), argv)
  },
  bind: (target, source, read_only) => {
    const options = read_only ? `${SAFE_OPTIONS},ro` : SAFE_OPTIONS
    return run(bindAt(target), [
      "mount",
      "-i",
      "-c",
      "--bind",
      "--make-private",
      "-o",
      options,
      at(source),
      target
    ])
  }
}

export const mounterOf = (mapped: boolean): Mounter => (mapped ? byHelper : byMount)

/** Detaches busy mounts (umount2(2)), and never follows a link. */
const [DETACH, NOFOLLOW] = [2, 8]

const unmount = (
  what: string,
  paths: ReadonlyArray<string>,
  detached: boolean
): Effect.Effect<void, IoError> =>
  repeatable("unmount", [String(detached ? NOFOLLOW + DETACH : NOFOLLOW), ...paths]).pipe(
    Effect.flatMap(({ code, errors }) => failureOf(what, "the helper", code, errors) ?? Effect.void),
    Effect.catchTags({
      HelperLost: () => new IoError({ code: "EINTR", message: `${what}: the helper was killed` }),
      HelperUnavailable: () => run(what, ["umount", "-i", "-c", ...(detached ? ["-l"] : []), ...paths])
    }),
    Effect.uninterruptible
  )

/** Unmounts everything at and below a folder, the last mount first; busy mounts are detached. */
export const unmountBelow = Effect.fnUntraced(function* (path: string) {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const paths = (yield* mountsAt(path)).map((entry) => entry.path).reverse()
    if (paths.length === 0) return
    const isDone = yield* unmount(`unmount ${path}`, paths, false).pipe(
      Effect.catchIf(
        (error) => error.code === "EBUSY" || round > 0,
        () => unmount(`unmount ${path}`, paths, true)
      ),
      Effect.as(true),
      // Some mounts may be gone; the next round finds the rest.
      Effect.catchIf(
        (error) => round < MAX_ROUNDS - 1 && error.code !== "ENOSYS" && error.code !== "EPERM",
        (error) => Effect.as(Effect.logDebug(error.message), false)
      )
    )
    if (isDone) return
  }
  if ((yield* mountsAt(path)).length > 0) {
    return yield* new IoError({
      code: "EBUSY",
      message: `unmount ${path}: new mounts keep appearing`
    })
  }
})

/** Whether a path shows an open file with the owner of the mount, or its own without `shown`. */
export const isShownAt = Effect.fnUntraced(function* (one: OpenPath, path: string, shown: Shown | undefined) {
  const [a, { stats: b }] = [one.stats, yield* openToMount(path)]
  if (a.dev !== b.dev || a.ino !== b.ino) return false
  const [uid, gid] = shown === undefined ? [a.uid, a.gid] : [BigInt(shown.as.uid), BigInt(shown.as.gid)]
  return b.uid === uid && b.gid === gid
}, Effect.scoped)
