/** Logins over SFTP: the user name is a server, the secret an API key or a password for the server (spec 10.6). */
import { Context, Effect, Layer } from "effect"
import { applicationScopes } from "../../contract/api/routePolicy.ts"
import { Unauthorized, type Unavailable } from "../../contract/domain/errors.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { FailedLogins } from "../http/FailedLogins.ts"
import { CurrentPrincipal, type Principal, ServerAccess } from "../http/Principal.ts"
import { lackingOf } from "../http/rights.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { SftpPasswords } from "./SftpPasswords.ts"
import { ALL } from "./Volume.ts"

/** Longest texts that a client may send, in characters. */
const LONGEST = 256

export interface LoggedIn {
  readonly principal: Principal
  readonly server: ServerId | typeof ALL
  /** Whether the session ends 12 h after its login. */
  readonly isTemporary: boolean
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

  const verified = Effect.fnUntraced(function* (
    username: string,
    secret: string,
    limited: Effect.Effect<boolean>
  ): Effect.fn.Return<LoggedIn, Unauthorized | Unavailable> {
    const password = yield* passwords.holder(secret)
    const principal =
      password === undefined ? yield* keys.verify(secret, limited) : yield* keys.holder(password.key_id)
    if (principal === undefined) return yield* refused("the key of the password does not exist")
    const lacking = lackingOf(principal, "browse", applicationScopes)
    if (lacking !== undefined) return yield* refused(`the API key lacks${lacking}`)
    const server = yield* Effect.provideService(serverOf(principal, username), CurrentPrincipal, principal)
    if (password !== undefined && password.server_id !== server)
      return yield* refused("the password is for another server")
    return { principal, server, isTemporary: password !== undefined }
  })

  /**
   * Returns the caller of a user name and a secret. Failures count for the address as those of HTTP do.
   * @error Unauthorized the log of the service has the reason
   */
  return {
    login: Effect.fnUntraced(function* (username: string, secret: string, address: string) {
      const attempt = { address, what: "SFTP login" }
      if (username.length > LONGEST || secret.length > LONGEST || username === "") {
        yield* failedLogins.count(attempt)
        return yield* refused("the user name or the secret is empty or too long")
      }
      return yield* Effect.tapErrorTag(
        verified(username, secret, failedLogins.isOver(attempt)),
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
