import { Effect } from "effect"
import { InvalidRequest } from "../../domain/errors.ts"
import { MAX_LABELS, mergeLabels, type ServerPatch } from "../../domain/Labels.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import type { ServerFields } from "../../store/repos/serverFields.ts"

/** Returns the fields of a record that a change of name, labels and expiry sets. */
export const settingsOf = Effect.fnUntraced(function* (
  record: ServerRecord,
  { labels, ...same }: ServerPatch
): Effect.fn.Return<ServerFields, InvalidRequest> {
  if (labels === undefined) return same
  const merged = mergeLabels(record.labels, labels)
  if (Object.keys(merged).length > MAX_LABELS) {
    return yield* new InvalidRequest({
      detail: `body field labels: the server would have ${Object.keys(merged).length} labels, at most ${MAX_LABELS} are allowed`
    })
  }
  return { ...same, labels: merged }
})
