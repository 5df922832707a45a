/** The replacement of the base below the files of a server, whose own files stay. */
import { join } from "node:path"
import { Effect } from "effect"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { IoError, isEmptyFolder, lstat, makeFolder } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { carryOver } from "./carryOver.ts"
import { copyIntoShared } from "./copyInside.ts"
import { copyTree } from "./copyTree.ts"
import { addCopies, addVolumes, type Creation } from "./createFiles.ts"
import { type FileContext, likelyKind } from "./fileContext.ts"
import type { FilePlan, Target } from "./filePlan.ts"
import { unmountBelow } from "./mounts.ts"
import { type BaseFolder, withBase } from "./overlayTree.ts"
import { chownParts, foreignParts, ownerFor } from "./owners.ts"
import { instanceFolder } from "./presentFiles.ts"
import { rebase } from "./rebase.ts"
import { kindAt } from "./sources.ts"
import { building, cleanFiles, recoverFiles, swapIn } from "./swapIn.ts"
import {
  plainBase,
  readTreeRecord,
  recordPlainBase,
  settlePlainBase,
  TREE,
  writeTreeRecord
} from "./treeRecord.ts"

export interface DefinitionStep {
  readonly from: ServerSpec
  readonly to: ServerSpec
}

/** `make`: for a server without files. */
export const makeBaseChanges = (context: FileContext, make: Creation) => {
  const { at, limits, planOf, present, sources } = context

  const renew = Effect.fn("InstanceFiles.renew")(function* (
    folder: string,
    base: BaseFolder,
    spec: ServerSpec,
    user?: RunUser
  ) {
    yield* recoverFiles(folder)
    const tree = join(folder, TREE)
    const files = instanceFolder(folder)
    const record = yield* readTreeRecord(tree)
    const empty = record === undefined && (yield* isEmptyFolder(files))
    if (empty) return yield* make(folder, base, spec, user) // a failed installation left no files
    yield* cleanFiles(folder)
    const restore = Effect.ignore(present(folder, spec, likelyKind(spec), user))
    const owner = ownerFor(user)
    // Unmounted first: no file of the base is written into shared folders.
    yield* unmountBelow(folder)
    if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
    if (record === undefined) {
      yield* Effect.onError(copyTree(base.folder, files, { owner }), () => restore)
      yield* recordPlainBase(folder, files, base.generation)
    } else {
      yield* carryOver({
        folder,
        record: yield* withBase(record, base),
        prepare: (tree) => limits.begin(folder, spec, tree),
        oldBase: join(at.generations, record.base),
        newBase: base.folder,
        owner
      }).pipe(Effect.onError(() => restore))
    }
    yield* present(folder, spec, likelyKind(spec), user)
  })

  const rebasePlain = Effect.fnUntraced(function* (
    folder: string,
    base: BaseFolder,
    to: ServerSpec,
    owner: RunUser | undefined
  ) {
    const files = instanceFolder(folder)
    const generation = yield* plainBase(folder, files)
    if (generation === base.generation) return
    const old = generation === undefined ? undefined : join(at.generations, generation)
    if (generation === undefined || old === undefined || !(yield* lstat(old))?.isDirectory()) {
      return yield* new IoError({
        code: "REFUSED",
        message:
          "the base from which the files of the server were made is gone, so that its own files cannot be told apart",
        next: "save the files of the base that were edited, which a reinstallation replaces"
      })
    }
    const { files: target } = building(folder)
    yield* recordPlainBase(folder, files, generation)
    yield* Effect.gen(function* () {
      yield* makeFolder(target)
      yield* limits.begin(folder, to, target)
      yield* rebase({ own: files, old, next: base.folder, target, owner })
      yield* recordPlainBase(folder, target, base.generation)
    }).pipe(Effect.onError(() => Effect.ignore(cleanFiles(folder))))
    yield* swapIn(folder, false).pipe(
      Effect.onError(() => Effect.ignore(recoverFiles(folder))),
      Effect.uninterruptible
    )
    yield* cleanFiles(folder)
    yield* settlePlainBase(folder, files)
  })

  /** Adds copies and `cow` volumes that an earlier plan did not have. */
  const addTemplates = Effect.fnUntraced(function* (folder: string, before: FilePlan, plan: FilePlan) {
    const files = instanceFolder(folder)
    const had = new Set([...before.cow, ...before.copies].map(({ parts }) => parts.join("/")))
    const isNew = Effect.fnUntraced(function* ({ parts }: Target) {
      if (had.has(parts.join("/"))) return false
      return (yield* kindAt(files, parts)) === "none"
    })
    yield* addVolumes(files, yield* Effect.filter(plan.cow, isNew), sources)
    const added = { ...plan, copies: yield* Effect.filter(plan.copies, isNew) }
    yield* addCopies(files, added, sources)
    yield* copyIntoShared(added, sources)
  })

  const upgrade = Effect.fn("InstanceFiles.upgrade")(function* (
    folder: string,
    base: BaseFolder,
    { from, to }: DefinitionStep,
    user?: RunUser
  ) {
    yield* recoverFiles(folder)
    const tree = join(folder, TREE)
    const files = instanceFolder(folder)
    const record = yield* readTreeRecord(tree)
    const empty = record === undefined && (yield* isEmptyFolder(files))
    if (empty) return yield* make(folder, base, to, user) // a failed installation left no files
    const plan = yield* planOf(to, "create")
    // A source of the earlier definition may be gone.
    const before = yield* Effect.catch(planOf(from, "create"), () => planOf(from))
    yield* cleanFiles(folder)
    yield* unmountBelow(folder)
    const owner = ownerFor(user)
    if (owner !== undefined) yield* chownParts(yield* foreignParts(folder, files, owner), owner)
    const replace = Effect.gen(function* () {
      if (record === undefined) yield* rebasePlain(folder, base, to, owner)
      else if (record.base !== base.generation) {
        // The layer of the server stays over the new base.
        yield* writeTreeRecord(tree, yield* withBase(record, base))
      }
    })
    yield* Effect.onError(replace, () => Effect.ignore(present(folder, from, likelyKind(from), user)))
    yield* present(folder, to, likelyKind(to), user)
    yield* addTemplates(folder, before, plan)
  })

  return { renew, upgrade }
}
