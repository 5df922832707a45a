import { Context, Effect, Layer } from "effect"

/**
 * Which of several replicas does the background duties. For a moment after a connection was lost two may think that
 * they do: a duty must bear being done twice.
 */
export class Duties extends Context.Service<
  Duties,
  {
    /** Whether this process does them now. */
    readonly mine: Effect.Effect<boolean>
  }
>()("muster/store/Duties") {
  /** For a database with one service. */
  static readonly layerAlone = Layer.succeed(Duties, Duties.of({ mine: Effect.succeed(true) }))
}
