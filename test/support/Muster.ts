import { Context, Effect, Layer } from "effect"
import { type Definitions, type Files, definitions as writeDefinitions } from "./definitions.ts"
import { endLeftovers } from "./processes.ts"
import { type Service, startService } from "./Service.ts"

/** A running service with its own definitions, shared by the tests of a file. */
export class Muster extends Context.Service<Muster, Service & { readonly folders: Definitions }>()(
  "test/Muster"
) {
  static readonly layer = (
    definitions: { readonly blueprints: Files; readonly software: Files },
    env: Record<string, string> = {}
  ) =>
    Layer.effect(
      Muster,
      Effect.gen(function* () {
        const folders = yield* writeDefinitions(definitions)
        const service = yield* startService({
          env: { MUSTER_OVERCOMMIT_MEMORY: "1000", ...folders.env, ...env }
        })
        yield* Effect.addFinalizer(() => endLeftovers(service.dataDir))
        return { ...service, folders }
      })
    )
}
