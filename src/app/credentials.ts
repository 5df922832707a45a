import { Effect, Layer } from "effect"
import { Unauthorized } from "../contract/domain/errors.ts"
import { Tickets } from "../controlPlane/events/Tickets.ts"
import { Credentials } from "../controlPlane/http/authenticate.ts"
import { ApiKeys, type AuthFailure, countAuthFailure, localPrincipal } from "../controlPlane/keys/ApiKeys.ts"

const bearer = /^(\S+) +(\S+) *$/

const refuse = (reason: AuthFailure, detail: string) =>
  Effect.andThen(countAuthFailure(reason), Effect.fail(new Unauthorized({ detail })))

/**
 * Verifies the `Authorization` header as an API key; without the header, a ticket. Without both, a caller over the unix
 * socket has every right: it is the owner of the data folder, or root.
 */
export const ServiceCredentials = Layer.effect(
  Credentials,
  Effect.gen(function* () {
    const keys = yield* ApiKeys
    const tickets = yield* Tickets
    const verifyTicket = Effect.fnUntraced(function* (ticket: string, limited: Effect.Effect<boolean>) {
      const found = yield* Effect.tapErrorTag(
        tickets.verify(ticket, { limited: yield* limited }),
        "Unauthorized",
        () => countAuthFailure("ticket")
      )
      return { ...found, ...(yield* keys.holder(found.key_id)) }
    })
    return Credentials.of({
      verify: ({ authorization, isLocal, limited, ticket }) => {
        if (authorization === undefined) {
          if (ticket !== undefined) return verifyTicket(ticket, limited)
          return isLocal
            ? Effect.succeed(localPrincipal)
            : refuse("no_header", "the Authorization header is missing")
        }
        const match = bearer.exec(authorization)
        return match?.[1]?.toLowerCase() !== "bearer" || match[2] === undefined
          ? refuse("malformed_header", "the Authorization header is not of the form `Bearer <key>`")
          : keys.verify(match[2], limited)
      }
    })
  })
)
