import { Context, Effect, Layer } from "effect"
import { NotFound } from "../../contract/domain/errors.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { type SoftwareSet, softwareSet } from "./definitions.ts"
import { makeReloadable } from "./reloadable.ts"
import { softwareWarnings } from "./views.ts"

/** Software definitions, read from disk (spec 4.6). */
export class SoftwareStore extends Context.Service<SoftwareStore>()("muster/blueprints/SoftwareStore", {
  make: Effect.fnUntraced(function* (options: { readonly directory: string }) {
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
    return {
      /** Software by id. The same array until a reload. */
      list: Effect.map(current, listOf),
      get,
      /** The software set by id. The same object until a reload, so that derived values can be cached. */
      current,
      /** As `BlueprintStore.warnings`. */
      warnings,
      /** As `BlueprintStore.reload`. */
      reload
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof SoftwareStore.make>) =>
    Layer.effect(SoftwareStore, SoftwareStore.make(...options))
}
