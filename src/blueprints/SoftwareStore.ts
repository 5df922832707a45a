import { Context, type Effect } from "effect"
import type { InvalidRequest, NotFound } from "../domain/errors.ts"
import type { Software } from "../domain/Software.ts"

/** Software definitions, read from disk (blueprints.md, "Software"; decisions, section 4). */
export class SoftwareStore extends Context.Service<
  SoftwareStore,
  {
    /** By id. */
    readonly list: Effect.Effect<ReadonlyArray<Software>>
    get(id: string): Effect.Effect<Software, NotFound>
    /** Reads the folder anew, all or nothing. @error InvalidRequest names each bad file with line, column, reason */
    readonly reload: Effect.Effect<void, InvalidRequest>
  }
>()("muster/blueprints/SoftwareStore") {}
