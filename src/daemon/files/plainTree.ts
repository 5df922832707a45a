/** Instances whose files are a plain folder: a copy of the base, with shared blocks if the file system can. */
import { Effect } from "effect"
import { type IoError, makeFolder } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { copyOpened, copyTree } from "./copyTree.ts"
import type { FilePlan } from "./filePlan.ts"
import { chownAll, makeLike } from "./owners.ts"
import {
  copySource,
  type FileSources,
  makeTarget,
  openSource,
  type Source,
  templateSource
} from "./sources.ts"

const copyInto = Effect.fnUntraced(function* (source: Source, place: string) {
  yield* copyOpened(source.what, yield* openSource(source), place)
}, Effect.scoped)

/** Copies the `copy` entries of the blueprint into an instance folder, except for those into shared folders. */
export const addCopies = Effect.fnUntraced(function* (files: string, plan: FilePlan, sources: FileSources) {
  for (const entry of plan.copies) {
    if (entry.within !== undefined) continue
    yield* copyInto(yield* copySource(entry.copy, sources), yield* makeTarget(files, entry))
  }
})

/** Copies volumes into an instance folder. */
export const addVolumes = Effect.fnUntraced(function* (
  files: string,
  volumes: FilePlan["cow"],
  sources: FileSources
) {
  for (const entry of volumes) {
    const source = yield* templateSource(entry.volume, sources)
    const place = yield* makeTarget(files, entry)
    yield* source === undefined ? makeLike(place, makeFolder(place)) : copyInto(source, place)
  }
})

/** Makes an instance in `files`, which does not exist yet. */
export const buildPlain = Effect.fnUntraced(function* (options: {
  readonly files: string
  readonly base: string
  readonly plan: FilePlan
  readonly sources: FileSources
  readonly share: (root: string) => Effect.Effect<unknown, IoError>
  readonly owner: RunUser | undefined
}) {
  const { base, files, owner, plan, share, sources } = options
  yield* copyTree(base, files)
  yield* addVolumes(files, plan.cow, sources)
  yield* share(files)
  yield* addCopies(files, plan, sources)
  if (owner !== undefined) yield* chownAll([files], owner)
})
