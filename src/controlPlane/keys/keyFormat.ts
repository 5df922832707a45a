import { hash, randomBytes } from "node:crypto"
import { crc32 } from "node:zlib"
import { Clock, Duration, Effect, Redacted } from "effect"
import type { KeyGrant } from "../../contract/domain/Key.ts"
import type { KeyRecord } from "../store/repos/KeyRepo.ts"

/**
 * An API key is `mst_`, 43 base62 characters for 32 random bytes, and 6 for the CRC-32 (as in gzip) of those 43. The
 * checksum protects no secret: it detects mistyped and leaked keys without a look-up.
 */
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const prefix = "mst_"
const BODY = 43
const CHECKSUM = 6
const pattern = new RegExp(`^${prefix}([0-9A-Za-z]{${BODY}})([0-9A-Za-z]{${CHECKSUM}})$`)

export const KEY_BYTES = 32

const numberOf = (bytes: Uint8Array): bigint => bytes.reduce((value, byte) => value * 256n + BigInt(byte), 0n)

const base62 = (value: bigint, digits: number): string => {
  let rest = value
  let text = ""
  for (let i = 0; i < digits; i++) {
    text = alphabet.charAt(Number(rest % 62n)) + text
    rest /= 62n
  }
  return text
}

const checksum = (body: string): string => base62(BigInt(crc32(body)), CHECKSUM)

export const formatKey = (random: Uint8Array): string => {
  const body = base62(numberOf(random), BODY)
  return `${prefix}${body}${checksum(body)}`
}

/** Whether `key` has the form of a key, checksum included. */
export const isWellFormed = (key: string): boolean => {
  const match = pattern.exec(key)
  return match?.[1] !== undefined && checksum(match[1]) === match[2]
}

/** Returns the id of a key, for lists and logs: `key_` and 16 base62 characters of `random` (12 bytes). */
export const formatKeyId = (random: Uint8Array): string => `key_${base62(numberOf(random), 16)}`

/** Returns SHA-256 in hex. A key has 256 random bits, so it needs no salt and no slow hash. */
export const hashKey = (key: string): string => hash("sha256", key)

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
