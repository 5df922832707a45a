/** Logins over SFTP: the user name is a server, the secret an API key, a password for the server, or an SSH key (spec 10.6). */

import { randomBytes } from "node:crypto"
import { Context, DateTime, Effect, Layer } from "effect"
import type * as Ssh from "ssh2"
import { applicationScopes } from "../../contract/api/middleware.ts"
import { Unauthorized, type Unavailable } from "../../contract/domain/errors.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { FailedLogins } from "../http/FailedLogins.ts"
import { CurrentPrincipal, lackingOf, type Principal, ServerAccess } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { hashKey } from "../keys/keyFormat.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { SftpRepo } from "../store/repos/SftpRepo.ts"
import { Store } from "../store/Store.ts"
import { fingerprintOf } from "./SftpHostKey.ts"
import { ALL } from "./Volume.ts"

/** Wrong passwords and signatures of a connection. */
const ATTEMPTS = 6
/** Keys of a connection that no API key has. Agents offer all that they hold. */
const UNKNOWN_KEYS = 20

const METHODS: Array<Ssh.AuthenticationType> = ["publickey", "password", "keyboard-interactive"]

type Credential =
  | { readonly kind: "secret"; readonly secret: string }
  /** The client has signed with the private key. */
  | { readonly kind: "ssh"; readonly fingerprint: string }

interface Answers {
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

const form = /^sftp_[\w-]{32}$/

const limits = { lifetime: 15 * 60_000, most: 10_000, mostOfKey: 100 }

/** Passwords of any replica; the database has their hashes only. */
export class SftpPasswords extends Context.Service<SftpPasswords>()("muster/sftp/SftpPasswords", {
  make: Effect.gen(function* () {
    const repo = yield* SftpRepo
    const store = yield* Store
    return {
      /** @error LimitReached the bound of unexpired passwords is reached, of this key or in total */
      issue: Effect.fn("SftpPasswords.issue")(function* ({ key_id }: Principal, server_id: ServerId) {
        const password = yield* Effect.sync(() => `sftp_${randomBytes(24).toString("base64url")}`)
        const stored = yield* store.write(
          repo.insertPassword(hashKey(password), { key_id, server_id }, limits)
        )
        if (typeof stored !== "string")
          return { password, expires_at: DateTime.formatIso(DateTime.makeUnsafe(stored)) }
        const limit = limits[stored]
        return yield* new LimitReached({
          detail: `${limit} passwords for SFTP${stored === "most" ? "" : " of this key"} have not expired`,
          hint: `Use them, or wait: a password expires after ${limits.lifetime / 60_000} minutes.`,
          limit,
          resetAfter: limits.lifetime
        })
      }),
      /** Returns the holder of a password, if it is valid; nothing for any other text. */
      holder: (password: string) =>
        form.test(password) ? store.read(repo.holder(hashKey(password))) : Effect.undefined
    }
  })
}) {
  static readonly layer = Layer.effect(SftpPasswords, SftpPasswords.make)
}

/** Longest texts that a client may send, in characters. */
const LONGEST = 256

/** The longest session of a temporary password. */
const LONGEST_TEMPORARY = "12 hours"

export interface LoggedIn {
  readonly principal: Principal
  readonly server: ServerId | typeof ALL
  /** Returns once the key, the SSH key or the password no longer admits the session. */
  readonly ends: Effect.Effect<void>
}

const refused = (detail: string) => new Unauthorized({ detail, hint: "" })

const make = Effect.gen(function* () {
  const access = yield* ServerAccess
  const failedLogins = yield* FailedLogins
  const index = yield* ServerIndex
  const keys = yield* ApiKeys
  const passwords = yield* SftpPasswords
  const servers = yield* ServerManager

  /** Returns the server of a user name. */
  const serverOf = Effect.fnUntraced(function* ({ restriction }: Principal, name: string) {
    if (name === ALL) return ALL
    const id = ServerId.make(name)
    if ((yield* access.mayRead(id)) && index.get(id) !== undefined) return id
    const named = [...index.all()].filter((record) => record.name === name && admits(restriction, record))
    if (named.length === 1 && named[0] !== undefined) return named[0].id
    return yield* Effect.mapError(servers.identify(name), ({ detail }) => refused(detail))
  })

  /** Returns the caller of a credential, with the server of a temporary password. */
  const holderOf = Effect.fnUntraced(function* (credential: Credential, limited: Effect.Effect<boolean>) {
    if (credential.kind === "ssh") {
      const { fingerprint } = credential
      const principal = yield* keys.holderOfSsh(fingerprint)
      if (principal === undefined) return yield* refused("no valid API key has the SSH key")
      return { principal, only: undefined, ends: keys.ended(fingerprint) }
    }
    const password = yield* passwords.holder(credential.secret)
    if (password === undefined) {
      const principal = yield* keys.verify(credential.secret, limited)
      return { principal, only: undefined, ends: keys.ended(principal.key_id) }
    }
    const { key_id, server_id } = password
    const principal = yield* keys.holder(key_id)
    if (principal === undefined) return yield* refused("the key of the password does not exist")
    const ends = Effect.raceFirst(keys.ended(key_id), Effect.sleep(LONGEST_TEMPORARY))
    return { principal, only: server_id, ends }
  })

  const verified = Effect.fnUntraced(function* (
    username: string,
    credential: Credential,
    limited: Effect.Effect<boolean>
  ): Effect.fn.Return<LoggedIn, Unauthorized | Unavailable> {
    const { ends, only, principal } = yield* holderOf(credential, limited)
    const lacking = lackingOf(principal, "browse", applicationScopes)
    if (lacking !== undefined) return yield* refused(`the API key lacks${lacking}`)
    const server = yield* Effect.provideService(serverOf(principal, username), CurrentPrincipal, principal)
    if (only !== undefined && only !== server) return yield* refused("the password is for another server")
    return { principal, server, ends }
  })

  return {
    /** Whether a valid API key has an SSH key; false while the database is unavailable. */
    knows: (fingerprint: string) =>
      Effect.match(keys.holderOfSsh(fingerprint), {
        onSuccess: (principal) => principal !== undefined,
        onFailure: () => false
      }),
    /**
     * Returns the caller of a user name and a credential. Failures count for the address as those of HTTP do.
     * @error Unauthorized the log of the service has the reason
     */
    login: Effect.fnUntraced(function* (username: string, credential: Credential, address: string) {
      const attempt = { address, what: "SFTP login" }
      const { length } = credential.kind === "secret" ? credential.secret : ""
      if (username.length > LONGEST || length > LONGEST || username === "") {
        yield* failedLogins.count(attempt)
        return yield* refused("the user name or the secret is empty or too long")
      }
      return yield* Effect.tapErrorTag(
        verified(username, credential, failedLogins.isOver(attempt)),
        "Unauthorized",
        () => failedLogins.count(attempt)
      )
    })
  }
})

export class SftpLogins extends Context.Service<SftpLogins, Effect.Success<typeof make>>()(
  "muster/sftp/SftpLogins"
) {
  static readonly layer = Layer.effect(SftpLogins, make)
}
