/** The dry run of a restore on the node (spec 12.5). */
import * as fs from "node:fs/promises"
import { Effect, type Scope, Semaphore, Stream } from "effect"
import type { RestoreComparison, RestoredPart } from "../../contract/domain/Backup.ts"
import type { CompareRequest } from "../../contract/nodeApi/NodeBackups.ts"
import { reserveSize } from "../../shared/work/diskSpace.ts"
import { whyClosed } from "../access/makeAccess.ts"
import { type AccessError, conflict, toTaskError } from "../access/refused.ts"
import type { Site } from "../access/Site.ts"
import { makeSite } from "../access/scenes.ts"
import { startComparison } from "../comparison/comparison.ts"
import { IoError, io } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import { refuseFixed } from "./restorePart.ts"

/** Comparisons that run at a time: each reads files of the disk. */
const MOST_COMPARED = 2
/** Longest comparison, in seconds: a caller of the API waits for it. */
const LONGEST = 60

/** Returns the bytes for which a restore has room. */
const roomOf = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  { folder, spec }: Site,
  part: RestoredPart | undefined
) {
  const { bavail, blocks, bsize } = yield* io("read the free space", () => fs.statfs(folder))
  const free = Math.max(0, bavail * bsize - reserveSize(blocks * bsize))
  const { base, limit, measured } = yield* files.diskUse(folder, spec)
  if (limit === 0) return free
  const most = part === undefined ? limit + (yield* base) : Math.max(0, limit - (yield* measured).bytes)
  return Math.min(free, most)
})

/** Compares files of a server with entries that arrive. */
export const makeCompare = (files: InstanceFiles["Service"]) => {
  const turns = Semaphore.makeUnsafe(MOST_COMPARED)

  const compare = Effect.fnUntraced(function* (
    instance: Instance,
    request: CompareRequest,
    index: Stream.Stream<Uint8Array, AccessError>
  ): Effect.fn.Return<RestoreComparison, AccessError, Scope.Scope> {
    const { part } = request
    const site = yield* makeSite(files, instance, {})
    if (part !== undefined) yield* refuseFixed({ part, site })
    const paths = yield* Effect.forEach(part?.paths ?? [], (path) => site.place(path))
    const { handle } = yield* site.root(yield* site.place("/"))
    const ask = yield* startComparison({
      ...request,
      ...(part === undefined ? {} : { part: { ...part, paths: paths.map(({ path }) => path) } }),
      fd: handle.fd,
      shared: site.sharedTargets,
      own: site.layout.written.map(({ target }) => `/${target.join("/")}`),
      ended: new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)
    })
    yield* Stream.runForEach(index, (bytes) => ask({ bytes }))
    const compared = yield* ask("done")
    if (compared === undefined)
      return yield* new IoError({ code: "THREAD", message: "the thread that compares the files gave no end" })
    return { ...compared, free_bytes: yield* roomOf(files, site, part) }
  })

  return (instance: Instance, request: CompareRequest, index: Stream.Stream<Uint8Array, AccessError>) =>
    instance.accesses
      .run(() => whyClosed(instance), compare(instance, request, index))
      .pipe(
        // The wait for a turn counts as well.
        turns.withPermit,
        Effect.timeoutOrElse({
          duration: `${LONGEST} seconds`,
          orElse: () =>
            Effect.fail(
              conflict(
                "/",
                `the files were not compared within ${LONGEST} s`,
                "Compare single files and folders: send paths."
              )
            )
        }),
        Effect.mapError(toTaskError)
      )
}
