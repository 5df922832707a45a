import { Schema } from "effect"
import { keyGrantFields } from "./KeyScope.ts"
import { PrintableText } from "./Labels.ts"
import { TimeText } from "./nowText.ts"

/** An API key in lists; times RFC 3339 in UTC. */
export const Key = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  ...keyGrantFields,
  created_at: TimeText,
  /** Null for a key that never expires. */
  expires_at: Schema.NullOr(TimeText),
  /** Null if the key is not revoked. */
  revoked_at: Schema.NullOr(TimeText)
}).annotate({ identifier: "Key" })
export type Key = typeof Key.Type

export const KeyName = PrintableText(128)

/** Name of the file in the data folder with the key of the first start. */
export const ADMIN_KEY_FILE = "admin.key"
