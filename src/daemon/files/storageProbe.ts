/** Detects the features of a folder's file system, and the permissions of this process, by use of each feature. */

import { randomUUID } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import type { InstanceStorage } from "../../contract/domain/Node.ts"
import { IoError, io, listFolder, makeFolder, mountsAt, orWarn, removeTree } from "../disk/fsio.ts"
import { isNoRoom } from "../disk/remedy.ts"
import { mounterOf, openToMount, type Shown, unmountBelow } from "./mounts.ts"
import { canChown, chownTree, ownerOf } from "./owners.ts"

export type StorageChoice = "auto" | InstanceStorage

export interface Storage {
  readonly strategy: InstanceStorage
  readonly binds: boolean
  readonly reflink: boolean
  /** Whether mounts can map the owner of files: layers of overlays, and bind mounts. */
  readonly mapped: { readonly layers: boolean; readonly binds: boolean }
}

/** The users of a probe, whose files are removed. */
const [ONE, OTHER] = [
  { uid: 64_001, gid: 64_002 },
  { uid: 64_003, gid: 64_004 }
]

const PROBE = ".probe-"
/** The best first. */
const STRATEGIES = ["overlay", "reflink", "copy"] as const

const broken = (message: string) => new IoError({ code: "BROKEN", message })

/** Returns why the attempt failed, if it did. @error IoError the disk has no room for the attempt */
const attempt = (effect: Effect.Effect<void, IoError>) =>
  effect.pipe(
    Effect.as(undefined),
    Effect.catchIf(
      (error) => !isNoRoom(error),
      (error) => Effect.succeed(error.message)
    )
  )

const isOther = Effect.fnUntraced(function* (path: string) {
  const { gid, uid } = yield* ownerOf(path)
  if (uid !== OTHER.uid || gid !== OTHER.gid) return yield* broken("a mount does not show the other owner")
})

const tryOverlay = Effect.fnUntraced(function* (folder: string, shown?: Shown) {
  const [lower, upper] = [join(folder, "lower"), join(folder, "upper")]
  const [work, files] = [join(folder, "work"), join(folder, "files")]
  for (const path of [folder, lower, upper, work, files]) yield* makeFolder(path)
  yield* io("write", () => fs.writeFile(join(lower, "below"), "below"))
  if (shown !== undefined) yield* chownTree(lower, shown.owner)
  const layers = {
    lower: [{ handle: yield* openToMount(lower), shown }],
    upper: yield* openToMount(upper),
    work: yield* openToMount(work)
  }
  yield* mounterOf(shown !== undefined).overlay(files, layers, "muster-probe")
  if ((yield* mountsAt(files)).length !== 1) return yield* broken("the mount is not in the mount table")
  yield* io("write over the base", () => fs.writeFile(join(files, "below"), "above"))
  if (shown !== undefined) yield* isOther(join(upper, "below"))
  yield* io("remove a file of the base", () => fs.unlink(join(files, "below")))
  const below = yield* io("read", () => fs.readFile(join(lower, "below"), "utf8"))
  if (below !== "below") return yield* broken("what is written reaches the base")
  yield* unmountBelow(files)
}, Effect.scoped)

const tryBind = Effect.fnUntraced(function* (folder: string) {
  const [source, target] = [join(folder, "source"), join(folder, "target")]
  yield* makeFolder(source)
  yield* makeFolder(target)
  const handle = yield* openToMount(source)
  yield* mounterOf(false).bind(target, handle, true, undefined)
  const written = yield* Effect.result(io("write", () => fs.writeFile(join(target, "file"), "")))
  if (written._tag === "Success") return yield* broken("a read-only mount can be written to")
  if (written.failure.code !== "EROFS") return yield* written.failure
  yield* unmountBelow(target)
}, Effect.scoped)

const tryMappedBind = Effect.fnUntraced(function* (folder: string) {
  const [source, target] = [join(folder, "own"), join(folder, "shown")]
  yield* makeFolder(source)
  yield* makeFolder(target)
  yield* chownTree(source, ONE)
  const handle = yield* openToMount(source)
  yield* mounterOf(true).bind(target, handle, false, { owner: ONE, as: OTHER })
  yield* isOther(target)
  yield* io("write", () => fs.writeFile(join(target, "file"), ""))
  yield* io("give", () => fs.chown(join(target, "file"), OTHER.uid, OTHER.gid))
  const { gid, uid } = yield* ownerOf(join(source, "file"))
  if (uid !== ONE.uid || gid !== ONE.gid) return yield* broken("a mount does not map the owner back")
  yield* unmountBelow(target)
}, Effect.scoped)

const tryReflink = Effect.fnUntraced(function* (folder: string) {
  const [source, target] = [join(folder, "one"), join(folder, "two")]
  yield* io("write", () => fs.writeFile(source, Buffer.alloc(64 * 1024, 1)))
  yield* io("share blocks", () => fs.copyFile(source, target, constants.COPYFILE_FICLONE_FORCE))
})

const clean = Effect.fnUntraced(function* (dir: string) {
  for (const name of yield* listFolder(dir)) {
    if (!name.startsWith(PROBE)) continue
    yield* unmountBelow(join(dir, name))
    yield* removeTree(join(dir, name))
  }
})

/** Whether other processes see this process's mounts. If unknown, they do: only a mount namespace hides them. */
const mountsAreShared = Effect.gen(function* () {
  const [own, first] = yield* Effect.forEach(["self", "1"], (pid) =>
    Effect.orElseSucceed(
      io("read the mount namespace", () => fs.readlink(`/proc/${pid}/ns/mnt`)),
      () => undefined
    )
  )
  return own === undefined || first === undefined || own === first
})

export interface ProbeOptions {
  /** The strategy to use if it works; else the next one. Default `auto`. */
  readonly choice?: StorageChoice
  readonly mounts?: boolean
  /** Whether to try mounts that map owners. Default true. */
  readonly mapped?: boolean
  /** Whether other processes must see the mounts, because an engine makes containers of them. Default false. */
  readonly shared?: boolean
}

/** Tries mounts and shared blocks in `dir`. @error IoError `ENOSPC`: the disk has no room to try them */
export const probeStorage = Effect.fnUntraced(function* (dir: string, options: ProbeOptions = {}) {
  const { choice = "auto", shared = false } = options
  const hidden = shared && !(yield* mountsAreShared)
  const mounts = (options.mounts ?? true) && !hidden
  const mapped = mounts && canChown() && (options.mapped ?? true)
  yield* makeFolder(dir)
  yield* clean(dir)
  const folder = join(dir, `${PROBE}${randomUUID()}`)
  const disabled = Effect.succeed(
    hidden
      ? "this service has its own mount namespace, whose mounts an engine does not see"
      : "mounts are disabled"
  )
  const reasons = yield* Effect.gen(function* () {
    yield* makeFolder(folder)
    const tries = {
      overlay: mounts ? attempt(tryOverlay(folder)) : disabled,
      binds: mounts ? attempt(tryBind(folder)) : disabled,
      reflink: attempt(tryReflink(folder)),
      layers: mapped ? attempt(tryOverlay(join(folder, "mapped"), { owner: ONE, as: OTHER })) : disabled,
      mapped: mapped ? attempt(tryMappedBind(folder)) : disabled
    }
    return yield* Effect.all(tries, { concurrency: 5 })
  }).pipe(Effect.ensuring(orWarn(clean(dir))))
  const isWorking = {
    overlay: reasons.overlay === undefined,
    reflink: reasons.reflink === undefined,
    copy: true
  }
  const best = choice === "auto" ? 0 : STRATEGIES.indexOf(choice)
  const strategy = STRATEGIES.slice(best).find((way) => isWorking[way]) ?? "copy"
  if (choice !== "auto" && strategy !== choice && choice !== "copy") {
    yield* Effect.logWarning(
      `instance files use ${strategy}, because ${choice} does not work: ${reasons[choice]}`
    )
  }
  if (reasons.binds !== undefined) {
    yield* Effect.logInfo(`volumes are shared by links, and \`ro\` ones copied: ${reasons.binds}`)
  }
  const unmapped = reasons.layers ?? reasons.mapped
  if (mapped && unmapped !== undefined) {
    yield* Effect.logInfo(`mounts cannot show files as those of another user: ${unmapped}`)
  }
  return {
    strategy,
    binds: reasons.binds === undefined,
    reflink: isWorking.reflink,
    mapped: { layers: reasons.layers === undefined, binds: reasons.mapped === undefined }
  } satisfies Storage
})
