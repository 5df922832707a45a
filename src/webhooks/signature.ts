/** Secrets and signatures of the Standard Webhooks specification. */
import { createHmac, randomBytes } from "node:crypto"

const PREFIX = "whsec_"
const SECRET_BYTES = 24

export const makeSecret = (): string => PREFIX + randomBytes(SECRET_BYTES).toString("base64")

/** Form of a secret: `whsec_` and 24 to 64 bytes in base64. */
export const secretPattern = /^whsec_[A-Za-z0-9+/]{32,86}={0,2}$/

/** Returns the headers of a message. `seconds`: Unix time of the attempt. */
export const signatureHeaders = (secret: string, message: { id: string; seconds: number; body: string }) => {
  const { body, id, seconds } = message
  const key = Buffer.from(secret.slice(PREFIX.length), "base64")
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64")
  return {
    "webhook-id": id,
    "webhook-timestamp": String(seconds),
    "webhook-signature": `v1,${signature}`
  }
}
