/** Attempts to log in of one connection: passwords, and SSH public keys with signatures (spec 10.6). */
import type * as Ssh from "ssh2"
import { fingerprintOf } from "./publicKeys.ts"

/** Wrong passwords and signatures of a connection. */
const ATTEMPTS = 6
/** Keys of a connection that no API key has. Agents offer all that they hold. */
const UNKNOWN_KEYS = 20

const METHODS: Array<Ssh.AuthenticationType> = ["publickey", "password", "keyboard-interactive"]

export type Credential =
  | { readonly kind: "secret"; readonly secret: string }
  /** The client has signed with the private key. */
  | { readonly kind: "ssh"; readonly fingerprint: string }

export interface Answers {
  /** Decides about a login; calls `refused` unless the attempt is accepted or the connection ends. */
  check(attempt: Ssh.AuthContext, credential: Credential, refused: () => void): void
  /** Calls `done` with whether a valid API key has an SSH key. */
  knows(fingerprint: string, done: (isKnown: boolean) => void): void
  end(): void
}

/** Returns the secret of an attempt; other methods have none. */
const secretOf = (attempt: Ssh.AuthContext, use: (secret: string) => void, none: () => void) => {
  if (attempt.method === "password") return use(attempt.password)
  if (attempt.method !== "keyboard-interactive") return none()
  attempt.prompt([{ prompt: "API key or password: ", echo: false }], (answers) => use(answers[0] ?? ""))
}

/** Whether a signature is of the key. RSA with SHA-1 is refused. */
const isSigned = (
  { blob, hashAlgo, key, signature }: Ssh.PublicKeyAuthContext,
  { parseKey }: typeof Ssh.utils
): boolean => {
  if (blob === undefined || signature === undefined) return false
  if (key.algo === "ssh-rsa" && hashAlgo === undefined) return false
  const parsed = parseKey(key.data)
  return !(parsed instanceof Error) && parsed.verify(blob, signature, hashAlgo) === true
}

/** Answers the attempts of a connection, one at a time. */
export const answerAttempts = (
  connection: Ssh.Connection,
  utils: typeof Ssh.utils,
  { check, end, knows }: Answers
): void => {
  let attempts = 0
  let unknownKeys = 0
  let isChecking = false

  const tryKey = (attempt: Ssh.PublicKeyAuthContext, use: (credential: Credential) => void) => {
    const fingerprint = fingerprintOf(attempt.key.data)
    isChecking = true
    knows(fingerprint, (isKnown) => {
      isChecking = false
      if (isKnown && attempt.signature === undefined) return attempt.accept()
      // A wrong signature fails as a login with an empty secret does.
      if (isKnown)
        return use(isSigned(attempt, utils) ? { kind: "ssh", fingerprint } : { kind: "secret", secret: "" })
      unknownKeys += 1
      if (unknownKeys >= UNKNOWN_KEYS) end()
      else attempt.reject(METHODS)
    })
  }

  connection.on("authentication", (attempt) => {
    const reject = () => attempt.reject(METHODS)
    if (isChecking) return reject()
    const use = (credential: Credential) => {
      // It stays set after a login, which is the last attempt.
      isChecking = true
      check(attempt, credential, () => {
        isChecking = false
        attempts += 1
        if (attempts >= ATTEMPTS) end()
        else reject()
      })
    }
    if (attempt.method === "publickey") return tryKey(attempt, use)
    secretOf(attempt, (secret) => use({ kind: "secret", secret }), reject)
  })
}
