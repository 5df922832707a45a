import { Context, type Effect } from "effect"
import type { BlueprintView, MixinView } from "../domain/Blueprint.ts"
import type { InvalidRequest, NotFound } from "../domain/errors.ts"
import type { Overrides } from "../domain/Overrides.ts"
import type { ServerDefinition } from "../domain/ServerDefinition.ts"

/** Blueprints and mixins, read from disk and composed (blueprints.md; decisions, section 4). */
export class BlueprintStore extends Context.Service<
  BlueprintStore,
  {
    /** By id, in their JSON form. */
    readonly list: Effect.Effect<ReadonlyArray<BlueprintView>>
    get(id: string): Effect.Effect<BlueprintView, NotFound>
    readonly mixins: Effect.Effect<ReadonlyArray<MixinView>>
    mixin(id: string): Effect.Effect<MixinView, NotFound>
    /**
     * The definition that a server would be created from.
     *
     * @error NotFound       no such blueprint
     * @error InvalidRequest software that is not defined, a version with no image, overrides that do not fit
     */
    resolve(
      blueprint_id: string,
      overrides: Overrides
    ): Effect.Effect<ServerDefinition, NotFound | InvalidRequest>
    /** Reads the folder anew, all or nothing. @error InvalidRequest names each bad file with line, column, reason */
    readonly reload: Effect.Effect<void, InvalidRequest>
  }
>()("muster/blueprints/BlueprintStore") {}
