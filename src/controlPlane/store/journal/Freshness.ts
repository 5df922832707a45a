import { Context } from "effect"

/**
 * Finds out, without a query, whether another process may have committed a change that this one has not read. A cache
 * beside the journal's followers (the API keys) is valid while the stamp is the same.
 */
export class Freshness extends Context.Service<
  Freshness,
  {
    /**
     * The same number while the followers have received every commit of other processes, except those in transit;
     * undefined: unknown, a query is necessary.
     */
    readonly stamp: () => number | undefined
  }
>()("muster/store/Freshness") {}
