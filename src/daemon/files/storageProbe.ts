/** What the file system of a folder offers, and what this process may do there: found out by doing it once. */
import { randomUUID } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import type { InstanceStorage } from "../../domain/SystemInfo.ts"
import { IoError, io, listFolder, makeFolder, mountsAt, removeTree } from "../disk/fsio.ts"
import type { Shown } from "./idmap.ts"
import { handlesOf, openMounter, openToMount, unmountBelow } from "./mounts.ts"
import { canChown, ownerOf } from "./owners.ts"
import { chownTree } from "./ownership.ts"

/** How instances are to be made; `auto` is the best that works. */
export type StorageChoice = "auto" | InstanceStorage

export interface Storage {
  /** How new instances are made. */
  readonly strategy: InstanceStorage
  /** Whether files and folders can be mounted a second time. */
  readonly binds: boolean
  readonly reflink: boolean
  /** Whether mounts can show the files of one owner as those of another: layers of overlays, and what is mounted again. */
  readonly mapped: { readonly layers: boolean; readonly binds: boolean }
}

/** Users of a probe; nothing of theirs is left. */
const [ONE, OTHER] = [
  { uid: 64_001, gid: 64_002 },
  { uid: 64_003, gid: 64_004 }
]

const PROBE = ".probe-"
/** The best first. */
const WAYS = ["overlay", "reflink", "copy"] as const

const broken = (message: string) => new IoError({ code: "BROKEN", message })

/** Answers undefined, or why not. */
const attempt = (effect: Effect.Effect<void, IoError>) =>
  effect.pipe(
    Effect.as(undefined),
    Effect.catch((error) => Effect.succeed(error.message))
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
  const mounter = yield* openMounter(shown !== undefined, handlesOf(layers), 1)
  yield* mounter.overlay(files, layers, "muster-probe")
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
  const mounter = yield* openMounter(false, [handle], 1)
  yield* mounter.bind(target, handle, true, undefined)
  const written = yield* Effect.result(io("write", () => fs.writeFile(join(target, "file"), "")))
  if (written._tag === "Success") return yield* broken("a read-only mount can be written to")
  yield* unmountBelow(target)
}, Effect.scoped)

const tryMappedBind = Effect.fnUntraced(function* (folder: string) {
  const [source, target] = [join(folder, "own"), join(folder, "shown")]
  yield* makeFolder(source)
  yield* makeFolder(target)
  yield* chownTree(source, ONE)
  const handle = yield* openToMount(source)
  const mounter = yield* openMounter(true, [handle], 1)
  yield* mounter.bind(target, handle, false, { owner: ONE, as: OTHER })
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

/** Removes what a probe that was cut off has left. */
const clean = Effect.fnUntraced(function* (dir: string) {
  for (const name of yield* listFolder(dir)) {
    if (!name.startsWith(PROBE)) continue
    yield* unmountBelow(join(dir, name))
    yield* removeTree(join(dir, name))
  }
})

/**
 * Whether others on this machine, such as an engine of containers, see what is mounted here. Where that cannot be
 * looked at it is taken for granted: so it is, but for services that were given mounts of their own.
 */
const seenByOthers = Effect.gen(function* () {
  const [own, first] = yield* Effect.forEach(["self", "1"], (pid) =>
    Effect.orElseSucceed(
      io("look at the mount namespace", () => fs.readlink(`/proc/${pid}/ns/mnt`)),
      () => undefined
    )
  )
  return own === undefined || first === undefined || own === first
})

export interface ProbeOptions {
  /** What to use where it works; else the next that does. Default `auto`. */
  readonly choice?: StorageChoice
  /** Whether mounts are to be tried at all. Default true. */
  readonly mounts?: boolean
  /** Whether mounts that map owners are to be tried. Default true. */
  readonly mapped?: boolean
  /** Whether others have to see them, too: containers are made of them by an engine. Default false. */
  readonly shared?: boolean
}

/** Tries mounts and shared blocks in `dir`. */
export const probeStorage = Effect.fnUntraced(function* (dir: string, options: ProbeOptions = {}) {
  const { choice = "auto", shared = false } = options
  const hidden = shared && !(yield* seenByOthers)
  const mounts = (options.mounts ?? true) && !hidden
  const mapped = mounts && canChown() && (options.mapped ?? true)
  yield* makeFolder(dir)
  yield* clean(dir)
  const folder = join(dir, `${PROBE}${randomUUID()}`)
  const no = Effect.succeed(
    hidden
      ? "this service has a mount namespace of its own, and an engine would not see them"
      : "mounts are not to be used"
  )
  const reasons = yield* Effect.gen(function* () {
    yield* makeFolder(folder)
    const tries = {
      overlay: mounts ? attempt(tryOverlay(folder)) : no,
      binds: mounts ? attempt(tryBind(folder)) : no,
      reflink: attempt(tryReflink(folder)),
      layers: mapped ? attempt(tryOverlay(join(folder, "mapped"), { owner: ONE, as: OTHER })) : no,
      mapped: mapped ? attempt(tryMappedBind(folder)) : no
    }
    return yield* Effect.all(tries, { concurrency: 5 })
  }).pipe(Effect.ensuring(Effect.catch(clean(dir), (error) => Effect.logWarning(error.message))))
  const works = {
    overlay: reasons.overlay === undefined,
    reflink: reasons.reflink === undefined,
    copy: true
  }
  const best = choice === "auto" ? 0 : WAYS.indexOf(choice)
  const strategy = WAYS.slice(best).find((way) => works[way]) ?? "copy"
  if (choice !== "auto" && strategy !== choice && choice !== "copy") {
    yield* Effect.logWarning(`instances are made by ${strategy}, not by ${choice}: ${reasons[choice]}`)
  }
  if (reasons.binds !== undefined) {
    yield* Effect.logInfo(`volumes are shared by links, and \`ro\` ones copied: ${reasons.binds}`)
  }
  const unmapped = reasons.layers ?? reasons.mapped
  if (mapped && unmapped !== undefined) {
    yield* Effect.logInfo(`mounts cannot show files as those of another user: ${unmapped}`)
  }
  const storage: Storage = {
    strategy,
    binds: reasons.binds === undefined,
    reflink: works.reflink,
    mapped: { layers: reasons.layers === undefined, binds: reasons.mapped === undefined }
  }
  return storage
})
