import { Context } from "effect"

/** A cache beside the journal's followers is valid without a query while the stamp is the same. */
export class Freshness extends Context.Service<
  Freshness,
  {
    /** Constant while the followers are up to date but for commits in transit; if unset, a query is necessary. */
    readonly stamp: () => number | undefined
  }
>()("muster/store/Freshness") {}
