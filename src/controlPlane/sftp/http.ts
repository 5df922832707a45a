import { Effect } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { Conflict, NotFound, Unauthorized } from "../../contract/domain/errors.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { SftpListener } from "./SftpListener.ts"
import { SftpPasswords } from "./SftpPasswords.ts"

const off = new Conflict({
  detail: "SFTP is off",
  hint: "Set MUSTER_SFTP_PORT and start the service again."
})

/** Handlers of `POST /api/servers/:server/sftp` (spec 10.6). */
export const SftpHandlers = handlersOf(
  ApplicationApi,
  "sftp",
  Effect.fn(function* (handlers) {
    const index = yield* ServerIndex
    const listener = yield* SftpListener
    const passwords = yield* SftpPasswords
    return handlers.handleAll({
      login: Effect.fnUntraced(
        function* ({ params: { server: username }, request }) {
          const caller = yield* CurrentPrincipal
          if (caller === undefined) return yield* new Unauthorized({ detail: "no API key was given" })
          if (index.get(username) === undefined) return yield* NotFound.server(username)
          const address = listener.addressFor(request)
          if (address === undefined) return yield* off
          return { ...address, username, ...(yield* passwords.issue(caller, username)) }
        },
        Effect.catchTag("LimitReached", limitResponse)
      )
    })
  })
)
