import { Context } from "effect"

/**
 * Says, without asking the database, whether another process may have changed something that this one does not know.
 * What is kept in memory beside the journal's followers (the API keys) is good as long as the stamp stays the same.
 */
export class Freshness extends Context.Service<
  Freshness,
  {
    /**
     * The same number as long as the followers of the journal have been told all that others have committed, but for
     * what is on its way; undefined: not known, the database must be asked.
     */
    readonly stamp: () => number | undefined
  }
>()("muster/store/Freshness") {}
