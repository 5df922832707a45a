/** The middleware of the routes: it declares their errors, and hides servers that the caller may not read. */

import { Context } from "effect"
import { HttpApiMiddleware, OpenApi } from "effect/http-api"
import {
  BodyTooLarge,
  Forbidden,
  InsufficientStorage,
  InternalError,
  InvalidRequest,
  TimedOut,
  TooManyRequests,
  Unauthorized,
  Unavailable
} from "../domain/errors.ts"
import type { KeyScope, Right } from "../domain/Key.ts"

/** Declares the errors of a route that needs a key (spec 1.5). `security` would decode each header twice. */
export class Authorization extends HttpApiMiddleware.Service<Authorization>()("muster/api/Authorization", {
  error: [Unauthorized, Forbidden, TooManyRequests]
}) {}

/** Hides the servers that the key of the caller may not read, and says how a deleted server ended (spec 6.3). */
export class ReadableServers extends HttpApiMiddleware.Service<ReadableServers>()(
  "muster/api/ReadableServers"
) {}

/** Returns 422 for input that does not decode (spec 1.2), and declares the failures of every route. */
export class Failures extends HttpApiMiddleware.Service<Failures>()("muster/api/Failures", {
  error: [InvalidRequest, BodyTooLarge, InternalError, TimedOut, Unavailable]
}) {}

/** Declares 507 for the disk of the database. A GET changes nothing, so only other methods respond with it. */
export class Writes extends HttpApiMiddleware.Service<Writes>()("muster/api/Writes", {
  error: InsufficientStorage
}) {}

export interface KeyRateLimit {
  readonly limit: number
  readonly window: "1 second" | "1 minute"
  readonly detail: string
}

/** Scopes that open a route; errors name the first. */
export type Scopes = readonly [KeyScope, ...ReadonlyArray<KeyScope>]

/** The scopes of the application; the rights of a key decide what the second and the third may do. */
export const applicationScopes: Scopes = ["AppAdmin", "Operator", "ReadOnly"]

export interface RoutePolicy {
  /** Default: {@link applicationScopes} below `/api`, no key elsewhere. */
  readonly scopes?: Scopes
  /** The right that the route needs (spec 6.2); without one, a key needs the scope `AppAdmin`. */
  readonly right?: Right
  /** The action in the audit log (spec 6.6), if any. Requests with the right `read` or `browse` only may share an entry. */
  readonly audited?: `${string}.${string}`
  /** Whether the route finds the server of its path itself: by the beginning of the id, or after its deletion. */
  readonly findsServer?: boolean
  /** Whether the route is a stream: it accepts a ticket in place of a key, and its WebSocket has no timeout. */
  readonly isStream?: boolean
  /** Whether the route accepts a ticket in place of a key, as streams do: a browser stores its response (spec 10.3). */
  readonly acceptsTicket?: boolean
  /** Whether the route answers while the embedded node starts. Other requests wait until the node is connected. */
  readonly answersEarly?: boolean
  /** Whether daemons call the route all the time, so that a request is logged at debug level only. */
  readonly isRoutine?: boolean
  /** Whether the query may hold any bytes, because each parameter has a fall-back value. */
  readonly hasQueryFallbacks?: boolean
  /** Whether the query may have parameters that the route does not declare; the peer may be newer. */
  readonly acceptsAnyQuery?: boolean
  /** Seconds for which a caller may ask the route to wait, on top of the time of every route; default: 0. */
  readonly longestWait?: number
  /** Bytes that a body may have where the setting is lower; default: the setting. */
  readonly largeBody?: number
  /** Most values in the arrays and objects of a body; default: the bound of all routes. */
  readonly mostValues?: number
  /** Whether bodies that are streams have no limit of size and time while their bytes move (spec 10.3). */
  readonly transfers?: boolean
  readonly rateLimit?: KeyRateLimit
  /** Headers of every response, also of errors and of `OPTIONS`. */
  readonly responseHeaders?: Readonly<Record<string, string>>
}

/** The policy of an endpoint, on top of the one of its group. */
export const Policy = Context.Reference<RoutePolicy>("muster/api/Policy", { defaultValue: () => ({}) })

/** Annotations of a route: its task, in one line, and its policy. */
export const route = (summary: string, policy: RoutePolicy = {}): Context.Context<never> =>
  Context.add(OpenApi.annotations({ summary }), Policy, policy)
