/** Logins over SFTP: the user name is a server, the secret an API key, a password for the server, or an SSH key (spec 10.6). */
import { Context, Effect, Layer } from "effect"
import { applicationScopes } from "../../contract/api/middleware.ts"
import { Unauthorized, type Unavailable } from "../../contract/domain/errors.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { FailedLogins } from "../http/FailedLogins.ts"
import { CurrentPrincipal, type Principal, ServerAccess } from "../http/Principal.ts"
import { lackingOf } from "../http/rights.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import type { Credential } from "./attempts.ts"
import { SftpPasswords } from "./SftpPasswords.ts"
import { ALL } from "./Volume.ts"

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
