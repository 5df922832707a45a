/**
 * The writes of callers that are in progress, each with a record in the folder `writes` beside `server.json`: the access
 * after a restart of the daemon removes what an unfinished write has left (spec 10.5).
 */
import { randomUUID } from "node:crypto"
import * as sync from "node:fs"
import { join } from "node:path"
import { Effect, Exit, Option, Schema, Semaphore } from "effect"
import { atScopeEnd } from "../../shared/work/inScope.ts"
import { type IoError, ioSync, listFolderSync, makeClosedFolder } from "../disk/fsio.ts"
import { WRITES } from "../files/swapFiles.ts"

/** Names of an unfinished file or copy, and of what it replaces, beside the target. */
export interface Staging {
  readonly aside: Buffer
  readonly old: Buffer
}

/** A staging whose copy can be noted as whole. */
export interface Staged extends Staging {
  /**
   * Notes that the copy of a moved tree is whole, so that the move can be finished; unset: that it is not. That note goes
   * before the copy does.
   */
  readonly copied: (from: string | undefined) => Effect.Effect<void, IoError>
}

const Record = Schema.Struct({
  path: Schema.String,
  aside: Schema.String,
  old: Schema.String,
  /** Where a tree is moved from, once its copy is whole. */
  from: Schema.optionalKey(Schema.String)
})
export type Unmade = Staging & { readonly path: string; readonly from: string | undefined }
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Record))

export class Unfinished {
  readonly #folder: string
  readonly #running = new Set<string>()
  readonly #undoing = Semaphore.makeUnsafe(1)
  /** Whether an earlier daemon, or a write that was interrupted, may have left a record. */
  #isLeft = true

  constructor(folder: string) {
    this.#folder = join(folder, WRITES)
  }

  #write(name: string, { aside, from, old, path }: Unmade) {
    const record = {
      path,
      aside: aside.toString(),
      old: old.toString(),
      ...(from === undefined ? {} : { from })
    }
    const file = join(this.#folder, name)
    return ioSync(path, () => sync.writeFileSync(file, JSON.stringify(record), { mode: 0o600 }))
  }

  /** Leaves the record of a write that was interrupted, for {@link undone}. */
  readonly left = (unmade: Unmade) =>
    Effect.gen({ self: this }, function* () {
      yield* makeClosedFolder(this.#folder)
      yield* this.#write(`${randomUUID()}.json`, unmade)
      this.#isLeft = true
    })

  /** Records a write until the end of the scope. The record of a write that fails stays for {@link undone}. */
  readonly record = (path: string, staging: Staging) =>
    Effect.uninterruptible(
      Effect.gen({ self: this }, function* () {
        const name = `${randomUUID()}.json`
        const file = join(this.#folder, name)
        yield* makeClosedFolder(this.#folder)
        yield* this.#write(name, { ...staging, path, from: undefined })
        this.#running.add(name)
        yield* atScopeEnd((exit) => {
          this.#running.delete(name)
          if (Exit.isSuccess(exit))
            return Effect.ignore(ioSync("remove the record", () => sync.unlinkSync(file)))
          this.#isLeft = true
          return Effect.void
        })
        return {
          ...staging,
          copied: (from) => this.#write(name, { ...staging, path, from })
        } satisfies Staged
      })
    )

  /** Undoes the writes that were left, before the access that follows. */
  readonly undone = <E>(
    undo: (unmade: Unmade, forget: Effect.Effect<void, IoError>) => Effect.Effect<unknown, E | IoError>
  ) =>
    this.#undoing.withPermit(
      Effect.gen({ self: this }, function* () {
        if (!this.#isLeft) return
        this.#isLeft = false
        for (const name of yield* listFolderSync(this.#folder)) {
          if (this.#running.has(name)) continue
          const file = join(this.#folder, name)
          const text = yield* ioSync("read the record", () => sync.readFileSync(file, "utf8"))
          const left = Option.getOrUndefined(decode(text))
          if (left !== undefined) {
            const { from, path } = left
            const staging = { aside: Buffer.from(left.aside), old: Buffer.from(left.old) }
            yield* undo({ ...staging, path, from }, this.#write(name, { ...staging, path, from: undefined }))
          }
          yield* ioSync("remove the record", () => sync.rmSync(file, { force: true }))
        }
      })
    )
}
