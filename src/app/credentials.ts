import { Effect, Layer } from "effect"
import { Unauthorized } from "../domain/errors.ts"
import { Tickets } from "../events/Tickets.ts"
import { Credentials } from "../http/authenticate.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { type AuthFailure, countAuthFailure } from "../keys/authFailures.ts"

const bearer = /^(\S+) +(\S+) *$/

const refuse = (reason: AuthFailure, detail: string) =>
  Effect.andThen(countAuthFailure(reason), Effect.fail(new Unauthorized({ detail })))

/** Verifies the `Authorization` header as an API key; without the header, a ticket. */
export const ServiceCredentials = Layer.effect(
  Credentials,
  Effect.gen(function* () {
    const keys = yield* ApiKeys
    const tickets = yield* Tickets
    return Credentials.of({
      verify: Effect.fnUntraced(function* ({ authorization, limited, ticket }) {
        if (authorization === undefined) {
          if (ticket === undefined) return yield* refuse("no_header", "the Authorization header is missing")
          const found = yield* Effect.tapErrorTag(
            tickets.verify(ticket, { limited: yield* limited }),
            "Unauthorized",
            () => countAuthFailure("ticket")
          )
          return { ...found, ...(yield* keys.holder(found.key_id)) }
        }
        const match = bearer.exec(authorization)
        if (match?.[1]?.toLowerCase() !== "bearer" || match[2] === undefined) {
          return yield* refuse(
            "malformed_header",
            "the Authorization header is not of the form `Bearer <key>`"
          )
        }
        return yield* keys.verify(match[2], { limited: yield* limited })
      })
    })
  })
)
