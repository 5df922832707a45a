import { Context, Effect, Layer } from "effect"
import type { JournalEntry } from "../../../../src/contract/domain/Journal.ts"
import { Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { Leadership } from "../../../../src/controlPlane/store/Leadership.ts"
import { ServerRepo } from "../../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { storeAt } from "./database.ts"

/** One of several stores on a database, and the entries that its followers have received. */
export const startReplica = Effect.fnUntraced(function* (
  url: string,
  options: Parameters<typeof storeAt>[1] = {}
) {
  const context = yield* Layer.build(Layer.fresh(storeAt(url, options)))
  const journal = Context.get(context, Journal)
  const seen: Array<JournalEntry> = []
  yield* journal.follow("publish", (entries) => Effect.sync(() => seen.push(...entries)))
  return {
    store: Context.get(context, Store),
    servers: Context.get(context, ServerRepo),
    leadership: Context.get(context, Leadership),
    journal,
    seen
  }
})
