/** The context that all operations on the files of a server share, once the features of the file system are known. */
import { Effect } from "effect"
import type { Copy } from "../../domain/Blueprint.ts"
import type { RuntimeKind } from "../../domain/Node.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copiesOf } from "./copyInside.ts"
import type { DiskLimits } from "./diskLimits.ts"
import { filePlan } from "./filePlan.ts"
import { withHomeEntries } from "./homeEntries.ts"
import type { LayerFolders } from "./overlayTree.ts"
import { ownerFor } from "./owners.ts"
import { makePresenter } from "./presentFiles.ts"
import type { SharedOwner } from "./sharedFiles.ts"
import type { FileSources } from "./sources.ts"
import type { Storage } from "./storageProbe.ts"
import type { TreeRecord } from "./treeRecord.ts"
import type { VolumeWriters } from "./volumeWriters.ts"

/** Returns the runtime of a server as its definition suggests; the start decides. */
export const likelyKind = ({ definition }: ServerSpec): RuntimeKind =>
  definition.image !== "" && definition.runtimes.includes("docker") ? "docker" : "process"

/** Makes the function that returns the plan of a server; `when`: with the copies of this time. */
export const makePlanOf = (sources: FileSources) =>
  Effect.fnUntraced(function* ({ definition }: ServerSpec, when?: NonNullable<Copy["when"]>) {
    const copy = when === undefined ? [] : yield* copiesOf(definition.copy, when, sources)
    const given = yield* withHomeEntries({ ...definition, copy }, sources)
    return yield* Effect.fromResult(filePlan(given))
  })

export interface FileContextOptions {
  readonly at: LayerFolders
  readonly storage: Storage
  readonly limits: DiskLimits
  readonly writers: VolumeWriters
  /** The user of containers, who owns the volumes that servers write. */
  readonly volumesUser: RunUser
}

/**
 * Makes the context; `present` mounts the files of a server and returns the shared folders among them. `made`: see
 * `makePresenter`.
 */
export const makeFileContext = ({ at, limits, storage, volumesUser, writers }: FileContextOptions) => {
  const { sources } = at
  const planOf = makePlanOf(sources)
  const presenter = makePresenter({ at, binds: storage.binds, mapped: storage.mapped.layers })
  const sharedOwner = (folder: string, user: RunUser | undefined): SharedOwner => ({
    owner: ownerFor(user),
    hasOwnUid: user?.own === true,
    volumes: volumesUser,
    mapped: storage.mapped.binds,
    writers: (real) => writers.writersOf(folder, real)
  })
  const present = Effect.fnUntraced(function* (
    folder: string,
    spec: ServerSpec,
    kind: RuntimeKind,
    user: RunUser | undefined,
    made?: TreeRecord
  ) {
    yield* limits.confirm(folder, spec)
    return yield* presenter.present(folder, yield* planOf(spec), kind, sharedOwner(folder, user), made)
  })

  return { at, limits, planOf, present, presenter, sharedOwner, sources, storage, writers }
}
export type FileContext = ReturnType<typeof makeFileContext>
