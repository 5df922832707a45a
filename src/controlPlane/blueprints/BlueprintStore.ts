import { Context, Effect, Layer, Result } from "effect"
import type { BackupRule } from "../../contract/domain/BackupTarget.ts"
import { revisionOf } from "../../contract/domain/compareDefinitions.ts"
import type { DeclaredVariables } from "../../contract/domain/environment.ts"
import { NotFound } from "../../contract/domain/errors.ts"
import type { Overrides } from "../../contract/domain/Overrides.ts"
import type { QuiesceRule } from "../../contract/domain/Quiesce.ts"
import { runRuleOf } from "../../contract/domain/RunRule.ts"
import type { Software } from "../../contract/domain/Software.ts"
import { inSpan } from "../../shared/observability/trace.ts"
import { RecentMap } from "../../shared/work/RecentMap.ts"
import {
  type BlueprintSet,
  blueprintNotes,
  blueprintSet,
  blueprintView,
  blueprintWarnings,
  mixinView,
  type SoftwareSet,
  softwareSet,
  softwareWarnings
} from "./definitions.ts"
import { makeReloadable } from "./reloadable.ts"
import { declaredVariables, resolve } from "./resolve.ts"

/** Blueprints and mixins, read from disk and composed (spec 4.2). */
export class BlueprintStore extends Context.Service<BlueprintStore>()("muster/blueprints/BlueprintStore", {
  make: Effect.fnUntraced(function* (options: { readonly directory: string }) {
    const software = yield* SoftwareStore
    const { current, isWhole, reload, warnings } = yield* makeReloadable({
      folder: "blueprints",
      directory: options.directory,
      build: blueprintSet,
      warnings: (set) => Effect.map(software.current, (softwares) => blueprintWarnings(set, softwares))
    })

    let views = viewsOf(yield* current, yield* software.current)
    /** Computed only after a reload of blueprints or software. */
    const fresh = Effect.gen(function* () {
      const set = yield* current
      const softwares = yield* software.current
      if (views.set !== set || views.softwares !== softwares) views = viewsOf(set, softwares)
      return views
    })

    const get = Effect.fn("BlueprintStore.get")(function* (id: string) {
      const view = (yield* fresh).byId.get(id)
      return view ?? (yield* NotFound.blueprint(id))
    })
    const mixin = Effect.fn("BlueprintStore.mixin")(function* (id: string) {
      const view = (yield* fresh).mixinsById.get(id)
      return view ?? (yield* NotFound.mixin(id))
    })
    const resolve = Effect.fnUntraced(function* (id: string, overrides: Overrides) {
      const resolved = (yield* fresh).today.definition(id, overrides)
      return yield* resolved === undefined ? NotFound.blueprint(id) : Effect.fromResult(resolved)
    }, inSpan("BlueprintStore.resolve"))
    return {
      /** Blueprints by id, in their JSON form. The same array until a reload of blueprints or software. */
      list: Effect.map(fresh, ({ list }) => list),
      get,
      mixins: Effect.map(fresh, ({ mixins }) => mixins),
      mixin,
      /**
       * Returns the definition of a new server.
       *
       * @error NotFound       there is no such blueprint
       * @error InvalidRequest software that is not defined, a version with no image, overrides that do not fit
       */
      resolve,
      /** The same object until a reload. */
      today: Effect.map(fresh, ({ today }): Today => today),
      /** Returns the variables that a blueprint, if there is one, and a software declare. */
      declared: Effect.fnUntraced(function* (
        id: string,
        software_id: string
      ): Effect.fn.Return<DeclaredVariables> {
        const blueprint = (yield* current).blueprints.get(id)
        return blueprint === undefined
          ? { names: new Set(), allowed: [] }
          : declaredVariables(blueprint, (yield* software.current).get(software_id))
      }),
      /** Whether a new server starts by its blueprint or the rule `always`, if these decide. */
      starts: (id: string, { run, save }: Overrides) =>
        Effect.map(current, ({ blueprints }) => {
          const found = blueprints.get(id)
          const ruled = {
            ...found,
            ...(run === undefined ? {} : { run }),
            save: save ?? found?.save ?? false
          }
          return runRuleOf(ruled) === "always" ? true : found?.start
        }),
      /** Returns the rule of backups of a blueprint; without the blueprint, there is none. */
      backupRule: (id: string): Effect.Effect<BackupRule> =>
        Effect.map(current, ({ blueprints }) => blueprints.get(id)?.backup ?? {}),
      /**
       * Returns all blueprints, which are the same object until a reload. Unless it `isWhole`, invalid files were left
       * out at the start, and blueprints may be missing.
       */
      whole: Effect.all({ blueprints: Effect.map(current, ({ blueprints }) => blueprints), isWhole }),
      /** Returns how servers of a software hold still for backups, if it says so. */
      quiesceRule: (software_id: string): Effect.Effect<QuiesceRule | undefined> =>
        Effect.map(software.current, (softwares) => softwares.get(software_id)?.quiesce),
      notes: Effect.fn("BlueprintStore.notes")(function* (id: string) {
        const blueprint = (yield* current).blueprints.get(id)
        return blueprint === undefined ? [] : blueprintNotes(blueprint, yield* software.current)
      }),
      /** One line each: ignored keys, files left out, why the last reload was refused, sources that fail. */
      warnings,
      /**
       * Syncs the sources of the folder and reads it, all or nothing.
       * @error InvalidRequest names each invalid file with line, column, reason; nothing has changed
       * @error SourceFailed names each source that could not be synced; the rest is reloaded
       */
      reload
    }
  })
}) {
  static readonly layer = (...options: Parameters<typeof BlueprintStore.make>) =>
    Layer.effect(BlueprintStore, BlueprintStore.make(...options))
}

export interface Today {
  /** Returns the revision to which a blueprint resolves, if it does. */
  revision(blueprint_id: string, overrides: Overrides | undefined): string | undefined
}

/** Definitions that are shared, and the longest of their keys in characters. */
const MAX_DEFINITIONS = 500
const LONGEST_KEY = 1_000

/** Resolves blueprints, once for equal overrides, which share a definition. */
const makeToday = ({ blueprints }: BlueprintSet, softwares: SoftwareSet) => {
  const resolutions = new RecentMap<string, ReturnType<typeof resolve>>(MAX_DEFINITIONS)
  /** Returns nothing if there is no such blueprint. */
  const definition = (blueprint_id: string, overrides: Overrides) => {
    const blueprint = blueprints.get(blueprint_id)
    if (blueprint === undefined) return undefined
    const key = `${blueprint_id} ${JSON.stringify(overrides)}`
    const resolved = resolutions.get(key) ?? resolve(blueprint, overrides, softwares)
    if (key.length <= LONGEST_KEY) resolutions.set(key, resolved)
    return resolved
  }
  return {
    definition,
    revision: (blueprint_id: string, overrides: Overrides = {}) => {
      const resolved = definition(blueprint_id, overrides)
      return resolved === undefined || Result.isFailure(resolved) ? undefined : revisionOf(resolved.success)
    }
  }
}

/** Returns the JSON forms of a set, with the images of one software set. */
const viewsOf = (set: BlueprintSet, softwares: SoftwareSet) => {
  const list = [...set.blueprints.values()].map((blueprint) => blueprintView(blueprint, softwares))
  const mixins = [...set.mixins.values()].map(mixinView)
  return {
    set,
    softwares,
    today: makeToday(set, softwares),
    list,
    byId: new Map(list.map((view) => [view.metadata.id, view])),
    mixins,
    mixinsById: new Map(mixins.map((view) => [view.id, view]))
  }
}

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
