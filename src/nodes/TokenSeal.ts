import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto"
import { Context } from "effect"
import type { NodeId } from "../domain/Id.ts"

/** Beginning of a sealed token: the version of its form. */
const VERSION = "s1"
const KEY_BYTES = 32
const FINGERPRINT_BYTES = 8
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** Encrypts the tokens that nodes are called with, as the database has them: AES-256-GCM, bound to the node. */
export interface TokenSeal {
  /** Names the secret without disclosing it; part of each sealed token. */
  readonly fingerprint: string
  /** Another text each time: a sealed token names one registration. */
  seal(node_id: NodeId, token: string): string
  /** Undefined: sealed with another secret, for another node, changed, or no sealed token at all. */
  open(node_id: NodeId, sealed: string): string | undefined
}

/** @param secret at least 32 bytes; what is derived from it is used for nothing else */
export const makeTokenSeal = (secret: Uint8Array): TokenSeal => {
  const derive = (what: string, bytes: number) =>
    Buffer.from(hkdfSync("sha256", secret, new Uint8Array(), `muster ${what}`, bytes))
  const key = derive("node tokens", KEY_BYTES)
  const fingerprint = derive("secret fingerprint", FINGERPRINT_BYTES).toString("hex")
  const head = `${VERSION}.${fingerprint}.`
  const bound = (node_id: NodeId) => Buffer.from(`${head}${node_id}`)

  return {
    fingerprint,
    seal: (node_id, token) => {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES })
      cipher.setAAD(bound(node_id))
      const text = Buffer.concat([cipher.update(token, "utf8"), cipher.final()])
      return head + Buffer.concat([nonce, cipher.getAuthTag(), text]).toString("base64url")
    },
    open: (node_id, sealed) => {
      if (!sealed.startsWith(head)) return undefined
      const bytes = Buffer.from(sealed.slice(head.length), "base64url")
      if (bytes.length <= NONCE_BYTES + TAG_BYTES) return undefined
      const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES
      })
      decipher.setAAD(bound(node_id))
      decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
      try {
        const text = decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES))
        return Buffer.concat([text, decipher.final()]).toString("utf8")
      } catch {
        // The tag does not match: changed, or of another node.
        return undefined
      }
    }
  }
}

/** The seal of this process. Default: a secret that no other process has, and that ends with this one. */
export const TokenSeal: Context.Reference<TokenSeal> = Context.Reference("muster/nodes/TokenSeal", {
  defaultValue: () => makeTokenSeal(randomBytes(KEY_BYTES))
})
