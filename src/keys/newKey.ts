import { hash, randomBytes } from "node:crypto"
import { Clock, Duration, Effect, Redacted } from "effect"
import type { KeyGrant } from "../domain/KeyScope.ts"
import type { KeyRecord } from "../store/repos/KeyRepo.ts"
import { formatKey, formatKeyId, KEY_BYTES } from "./keyFormat.ts"

/**
 * Returns the stored form of a key: SHA-256 in hex. A key has 256 random bits, so it needs no salt and no slow hash.
 */
export const hashKey = (key: string): string => hash("sha256", key)

/** Makes a key; only the caller ever sees it. */
export const generateKey: Effect.Effect<Redacted.Redacted<string>> = Effect.sync(() =>
  Redacted.make(formatKey(randomBytes(KEY_BYTES)))
)

const LATEST_DATE_MILLIS = 8.64e15

const dateAfter = (now: number, expires: Duration.Duration | undefined): string | null => {
  const at = expires === undefined ? Number.POSITIVE_INFINITY : now + Duration.toMillis(expires)
  return at > LATEST_DATE_MILLIS ? null : new Date(at).toISOString()
}

/** Makes the record of `key`. It never expires without `expires`, or with one that no date can hold. */
export const makeRecord = Effect.fnUntraced(function* (
  key: Redacted.Redacted<string>,
  { expires, name, ...grant }: KeyGrant & { readonly name: string; readonly expires?: Duration.Duration }
): Effect.fn.Return<KeyRecord> {
  const now = yield* Clock.currentTimeMillis
  return {
    id: yield* Effect.sync(() => formatKeyId(randomBytes(12))),
    name,
    ...grant,
    hash: hashKey(Redacted.value(key)),
    created_at: new Date(now).toISOString(),
    expires_at: dateAfter(now, expires),
    revoked_at: null
  }
})
