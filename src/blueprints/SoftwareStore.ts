import { Context, Effect, Layer } from "effect"
import { type InvalidRequest, NotFound, type SourceFailed } from "../domain/errors.ts"
import type { Software } from "../domain/Software.ts"
import { type SoftwareSet, softwareSet } from "./definitions.ts"
import { makeReloadable } from "./reloadable.ts"
import { softwareWarnings } from "./views.ts"

/** Software definitions, read from disk (blueprints.md, "Software"; decisions, section 4). */
export class SoftwareStore extends Context.Service<
  SoftwareStore,
  {
    /** By id. The same array until a reload has replaced it. */
    readonly list: Effect.Effect<ReadonlyArray<Software>>
    get(id: string): Effect.Effect<Software, NotFound>
    /** All of it by id. The same object until a reload has replaced it, so that what is derived from it can be kept. */
    readonly current: Effect.Effect<SoftwareSet>
    /**
     * What should be looked at, one line each: keys that are not acted on and the like in what serves now, files that
     * were left out of it, why the last reload was refused, sources that fail.
     */
    readonly warnings: Effect.Effect<ReadonlyArray<string>>
    /**
     * Syncs the folder's sources and reads it anew, all or nothing.
     *
     * @error InvalidRequest names each bad file with line, column, reason; nothing has changed
     * @error SourceFailed   names each source that could not be synced; everything else has been reloaded
     */
    readonly reload: Effect.Effect<void, InvalidRequest | SourceFailed>
  }
>()("muster/blueprints/SoftwareStore") {
  /** @param options.directory the software folder */
  static layer(options: { readonly directory: string }) {
    return Layer.effect(
      SoftwareStore,
      Effect.gen(function* () {
        const { current, reload, warnings } = yield* makeReloadable({
          folder: "software",
          directory: options.directory,
          build: softwareSet,
          warnings: (set) => Effect.succeed(softwareWarnings(set))
        })
        const lists = new WeakMap<SoftwareSet, ReadonlyArray<Software>>()
        const listOf = (set: SoftwareSet) => {
          const list = lists.get(set) ?? [...set.values()]
          lists.set(set, list)
          return list
        }
        const get = Effect.fn("SoftwareStore.get")(function* (id: string) {
          const software = (yield* current).get(id)
          return software ?? (yield* NotFound.software(id))
        })
        return SoftwareStore.of({ list: Effect.map(current, listOf), get, current, warnings, reload })
      })
    )
  }
}
