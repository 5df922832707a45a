import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { firstRow, upsertRows } from "./sql/rows.ts"
import { write } from "./sql/Transaction.ts"

/** Beginning of a sealed text: the version of its form. */
const VERSION = "s1"
const KEY_BYTES = 32
const FINGERPRINT_BYTES = 8
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** Encrypts secrets as the database has them: AES-256-GCM, bound to the row that they belong to. */
export interface Seal {
  /** Names the secret without disclosing it; part of each sealed text. */
  readonly fingerprint: string
  /** Another text each time: a sealed text names one write. */
  seal(row: string, text: string): string
  /** Returns nothing for a text that was not sealed with this secret and for this row. */
  open(row: string, sealed: string): string | undefined
}

/** `secret` has at least 32 bytes, used for nothing else; each `purpose` has its own key. */
export const makeSeal = (secret: Uint8Array, purpose: string): Seal => {
  const derive = (what: string, bytes: number) =>
    Buffer.from(hkdfSync("sha256", secret, new Uint8Array(), `muster ${what}`, bytes))
  const key = derive(purpose, KEY_BYTES)
  const fingerprint = derive("secret fingerprint", FINGERPRINT_BYTES).toString("hex")
  const head = `${VERSION}.${fingerprint}.`
  const bound = (row: string) => Buffer.from(`${head}${row}`)

  return {
    fingerprint,
    seal: (row, text) => {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES })
      cipher.setAAD(bound(row))
      const encrypted = Buffer.concat([cipher.update(text, "utf8"), cipher.final()])
      return head + Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString("base64url")
    },
    open: (row, sealed) => {
      if (!sealed.startsWith(head)) return undefined
      const bytes = Buffer.from(sealed.slice(head.length), "base64url")
      if (bytes.length <= NONCE_BYTES + TAG_BYTES) return undefined
      const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES
      })
      decipher.setAAD(bound(row))
      decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
      try {
        const text = decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES))
        return Buffer.concat([text, decipher.final()]).toString("utf8")
      } catch {
        // The tag does not match: changed, or of another row.
        return undefined
      }
    }
  }
}

/** A secret that no other process has, and that ends with this one. */
export const passingSecret = (): Uint8Array => randomBytes(KEY_BYTES)

const readFingerprint = firstRow(Schema.Struct({ fingerprint: Schema.String }))

/** The secret of the services on this database, as a fingerprint that discloses nothing. */
export class SecretRepo extends Context.Service<SecretRepo>()("muster/store/SecretRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({
    fingerprint: Effect.map(
      readFingerprint(sql`SELECT fingerprint FROM secret_fingerprint`),
      (row) => row?.fingerprint
    ),
    save: (fingerprint: string) =>
      write(upsertRows(sql, "secret_fingerprint", "id", [{ id: 1, fingerprint }]))
  }))
}) {
  static readonly layer = Layer.effect(SecretRepo, SecretRepo.make)
}
