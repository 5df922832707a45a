/** Room for what callers write: the disk limit of the server, and the space that the disk keeps free (spec 10.3). */
import { Clock, Effect, Exit, Semaphore } from "effect"
import { fileLimit, megabytes } from "../../contract/domain/Limits.ts"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"
import { atScopeEnd } from "../../shared/work/inScope.ts"
import { diskOf, type IoError } from "../disk/fsio.ts"
import { checkFreeSpace, isNoRoom } from "../disk/remedy.ts"
import type { TreeSize } from "../files/copyTree.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { AccessError } from "./refused.ts"
import type { Place, Site } from "./Site.ts"

/** A measurement is used for this long, in ms, and for at least ten times as long as it took. */
const FRESH = 5000
/** A write is not refused by an older measurement, in ms. */
const CERTAIN = 500
/** Inodes beside the files of a server that its quota counts, at most. */
const BESIDE = 16
/** Bytes between two checks of the disk. */
const CHECK_INTERVAL = 4 * 1024 * 1024

interface Measurement extends TreeSize {
  readonly at: number
  readonly took: number
  readonly limit: number
  readonly isEnforced: boolean
}

const noRoom = (detail: string) =>
  new FileRefused({
    status: 507,
    detail,
    hint: "Delete files, or raise the limit, which the next start applies: `muster servers patch <server> --set limits.disk_space=<MB>`, or Changes > Disk in the dashboard."
  })

/** The room of one server, which its running writes share. */
export class Room {
  readonly #files: InstanceFiles["Service"]
  readonly #measuring = Semaphore.makeUnsafe(1)
  #measured: Measurement | undefined
  /** What was written since the measurement began. */
  #added = { bytes: 0, entries: 0 }
  /** Whether something was deleted since the measurement. */
  #isFreed = false
  #unchecked = Number.POSITIVE_INFINITY

  constructor(files: InstanceFiles["Service"]) {
    this.#files = files
  }

  /** @error FileRefused 507 the bytes and entries do not fit */
  fits(
    site: Site,
    { shared }: Pick<Place, "shared">,
    bytes: number,
    entries = 0
  ): Effect.Effect<void, FileRefused | IoError> {
    return Effect.gen({ self: this }, function* () {
      // Files of volumes count against no server.
      if (shared !== undefined) return
      const measured = yield* this.#current(site, FRESH)
      if (measured.limit === 0 || measured.isEnforced || !this.#beyond(measured, bytes, entries)) return
      const certain = yield* this.#current(site, CERTAIN)
      if (this.#beyond(certain, bytes, entries)) return yield* this.#refused(certain, bytes)
    })
  }

  /** Takes room for bytes and entries before they are written. @error FileRefused 507 they do not fit */
  take(
    site: Site,
    place: Pick<Place, "shared">,
    bytes: number,
    entries = 0
  ): Effect.Effect<void, FileRefused | IoError> {
    return Effect.gen({ self: this }, function* () {
      this.#unchecked += bytes
      if (this.#unchecked >= CHECK_INTERVAL) {
        this.#unchecked = 0
        yield* checkFreeSpace(site.folder)
      }
      yield* this.fits(site, place, bytes, entries)
      if (place.shared !== undefined) return
      this.#added.bytes += bytes
      this.#added.entries += entries
    })
  }

  /**
   * Checks the length of a file of which no byte is written: a hole takes no room, but each reader gets its bytes.
   * @param missing bytes of the file that are not on disk
   * @error FileRefused 507 they would not fit
   */
  holds(
    site: Site,
    { shared }: Pick<Place, "shared">,
    missing: number
  ): Effect.Effect<void, FileRefused | IoError> {
    return Effect.gen({ self: this }, function* () {
      const { free } = yield* diskOf(site.folder)
      if (missing > free)
        return yield* noRoom(`disk: ${megabytes(free)} free, the file needs ${megabytes(missing)}`)
      if (shared !== undefined) return
      const certain = yield* this.#current(site, CERTAIN)
      if (certain.limit > 0 && this.#beyond(certain, missing, 0)) return yield* this.#refused(certain)
    })
  }

  /** Takes room for one change; what it took is free again if the change fails. */
  readonly taking = (site: Site, place: Pick<Place, "shared">) => {
    const taken = { bytes: 0, entries: 0 }
    return Effect.as(
      atScopeEnd((exit) =>
        Effect.sync(() => {
          if (Exit.isSuccess(exit) || place.shared !== undefined) return
          this.#added.bytes -= taken.bytes
          this.#added.entries -= taken.entries
        })
      ),
      (bytes: number, entries = 0) =>
        Effect.tap(this.take(site, place, bytes, entries), () =>
          Effect.sync(() => {
            taken.bytes += bytes
            taken.entries += entries
          })
        )
    )
  }

  /** Notes that something was deleted or replaced: the next refusal measures again. */
  freed(): void {
    this.#isFreed = true
  }

  /** Says what the disk limit is and what is used, where the file system has refused a write. */
  readonly explained =
    (site: Site) =>
    <A, R>(write: Effect.Effect<A, AccessError, R>): Effect.Effect<A, AccessError, R> =>
      Effect.catchIf(
        write,
        (error) => error._tag === "IoError" && isNoRoom(error),
        (error) =>
          Effect.gen({ self: this }, function* () {
            // XFS has the code of a full disk also for its quotas.
            const { isEnforced } = yield* this.#files.diskUse(site.folder, site.spec)
            if (error._tag === "IoError" && error.code === "ENOSPC") {
              if (!isEnforced) return yield* error
              yield* checkFreeSpace(site.folder)
            }
            return yield* this.#refused(yield* this.#current(site, CERTAIN))
          })
      )

  #refused({ bytes, entries, limit, unmeasured }: Measurement, needed = 0) {
    const files = fileLimit(limit)
    if (unmeasured !== undefined)
      return noRoom(`disk: an unknown size (${unmeasured}) of ${megabytes(limit)}`)
    return bytes + this.#added.bytes < limit && entries + this.#added.entries >= files - BESIDE
      ? noRoom(`disk: ${entries} of ${files} files and folders`)
      : noRoom(
          `disk: ${megabytes(Math.max(0, limit - bytes - this.#added.bytes))} of ${megabytes(limit)} are free${needed > 0 ? `, at least ${megabytes(needed)} are needed` : ""}`
        )
  }

  #beyond(measured: Measurement, bytes: number, entries: number): boolean {
    return (
      measured.unmeasured !== undefined ||
      measured.bytes + this.#added.bytes + bytes > measured.limit ||
      measured.entries + this.#added.entries + entries > fileLimit(measured.limit)
    )
  }

  #current(site: Site, fresh: number): Effect.Effect<Measurement, IoError> {
    return this.#measuring.withPermit(
      Effect.gen({ self: this }, function* () {
        const clock = yield* Clock.Clock
        const now = () => elapsedMillisOf(clock)
        const known = this.#measured
        const { isEnforced, limit, measured } = yield* this.#files.diskUse(site.folder, site.spec)
        const isSame = known !== undefined && known.limit === limit && known.isEnforced === isEnforced
        const isFreed = this.#isFreed && fresh === CERTAIN
        if (isSame && !isFreed && now() - known.at < Math.max(fresh, known.took * 10)) return known
        const at = now()
        this.#isFreed = false
        this.#added = { bytes: 0, entries: 0 }
        const unlimited: TreeSize = { bytes: 0, entries: 0, unmeasured: undefined }
        const size = limit === 0 || (isEnforced && fresh === FRESH) ? unlimited : yield* measured
        const next: Measurement = { ...size, at, took: now() - at, limit, isEnforced }
        this.#measured = next
        return next
      })
    )
  }
}
