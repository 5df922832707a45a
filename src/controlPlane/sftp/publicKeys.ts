/** SSH public keys: their text, kind and fingerprint (spec 10.6). */
import { createHash, createPublicKey } from "node:crypto"
import { Effect, Option } from "effect"
import type * as Ssh from "ssh2"
import { replaceHostile } from "../../contract/domain/NodeText.ts"

/** Loaded at the first use: most services have no SFTP. */
export const loadSsh = Effect.map(
  Effect.promise(() => import("ssh2")),
  ({ default: ssh }) => ssh
)

const SHORTEST_RSA = 2048
const LONGEST_COMMENT = 200

const form =
  /^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) +([A-Za-z0-9+/]+={0,2})(?: +([^\r\n]*))?$/

/** Returns the fingerprint of a key as OpenSSH shows it: `SHA256:...`. */
export const fingerprintOf = (blob: Uint8Array): string =>
  `SHA256:${createHash("sha256").update(blob).digest("base64").replace(/=+$/, "")}`

export interface PublicKey {
  readonly type: string
  readonly fingerprint: string
  readonly comment: string
}

const bitsOf = Option.liftThrowable((pem: string) => createPublicKey(pem).asymmetricKeyDetails?.modulusLength)

/** Reads a line as `ssh-keygen` writes it to a file `.pub`. Returns what is expected instead if the text is no such line. */
export const readPublicKey = (text: string, { parseKey }: typeof Ssh.utils): PublicKey | string => {
  const [, type = "", encoded = "", comment = ""] = form.exec(text.trim()) ?? []
  if (type === "")
    return "expected one line of an ssh-ed25519, ecdsa-sha2-nistp256, -nistp384, -nistp521 or ssh-rsa public key, without options"
  const blob = Buffer.from(encoded, "base64")
  const key = parseKey(blob)
  if (key instanceof Error || key.type !== type || key.isPrivateKey())
    return `expected a public key of the type ${type}`
  const bits = type === "ssh-rsa" ? Option.getOrUndefined(bitsOf(key.getPublicPEM())) : SHORTEST_RSA
  if (bits === undefined || bits < SHORTEST_RSA)
    return `expected at least ${SHORTEST_RSA} bits, got ${bits ?? "another key"}`
  return {
    type,
    fingerprint: fingerprintOf(blob),
    comment: replaceHostile(comment.trim().slice(0, LONGEST_COMMENT), "?")
  }
}
