/** The files of a server from a backup: made aside, then put in place of the old ones at once (spec 12.5). */
import { join } from "node:path"
import { Effect } from "effect"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { InstancePaths } from "../archives/packFiles.ts"
import { IoError } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { buildAside, type Creating } from "./createFiles.ts"
import { type FileContext, present, sharedOwner } from "./fileContext.ts"
import { layoutOf } from "./fileLayout.ts"
import { instancePaths, sizeLimit } from "./importFiles.ts"
import { building, cleanFiles, endReady, isBuilt, markReady, placeReady, recoverFiles } from "./swapFiles.ts"
import { readTreeRecord, TREE } from "./treeRecord.ts"

/** Where the contents of a backup go. */
export interface Restoring {
  readonly files: string
  readonly paths: InstancePaths
  readonly user: RunUser | undefined
  /** Bytes that the contents have at most, if there is a limit. */
  readonly limit: number | undefined
}

/** Writes the contents of a backup below a folder. */
export type Contents = (to: Restoring) => Effect.Effect<void, IoError>

/** @param context what the methods of `InstanceFiles` share */
export const makeRestoration = (context: FileContext) => {
  const { at, finishPart, planOf } = context
  return {
    finish: Effect.fn("InstanceFiles.finish")(function* (folder: string, spec: ServerSpec) {
      yield* finishPart(folder, spec, yield* layoutOf(at, planOf, folder, spec))
    }),
    stage: Effect.fn("InstanceFiles.stage")(function* (
      folder: string,
      spec: ServerSpec,
      user: RunUser | undefined,
      contents: Contents
    ) {
      yield* cleanFiles(folder, yield* recoverFiles(folder))
      const record = yield* readTreeRecord(join(folder, TREE))
      const plan = yield* planOf(spec)
      const to = sharedOwner(context, folder, user)
      const made = building(folder)
      const generation = record?.base ?? ""
      const creating: Creating = {
        base: { folder: join(at.generations, generation), generation },
        plan,
        to,
        ...made,
        contents: Effect.gen(function* () {
          const { files } = made
          const paths = instancePaths(plan)
          const limit = yield* sizeLimit(files, spec, paths)
          yield* contents({ files, paths, user: to.owner, limit })
        })
      }
      yield* buildAside(context, creating, { folder, spec, isOverlay: record !== undefined })
    }),
    unstage: Effect.fn("InstanceFiles.unstage")(function* (folder: string) {
      yield* cleanFiles(folder, yield* recoverFiles(folder))
    }),
    place: Effect.fn("InstanceFiles.place")(function* (
      folder: string,
      spec: ServerSpec,
      kind: RuntimeKind,
      by: { readonly task: string; readonly user: RunUser | undefined }
    ) {
      if (!(yield* isBuilt(folder)))
        return yield* new IoError({
          code: "ENOENT",
          message: "the files of the backup were removed meanwhile"
        })
      yield* markReady(folder, by.task)
      yield* placeReady(folder)
      yield* present(context, folder, spec, kind, by.user)
      yield* endReady(folder)
    }, Effect.uninterruptible)
  }
}
