/** Properties that routes declare and the HTTP server applies before a handler runs. */
import { Context } from "effect"
import { OpenApi } from "effect/http-api"
import type { KeyScope } from "../domain/KeyScope.ts"

/** A limit of requests per key. */
export interface KeyRateLimit {
  readonly limit: number
  readonly window: "1 second" | "1 minute"
  /** The `detail` of a request over the limit. */
  readonly detail: string
}

/** Scopes that open a route; errors name the first. */
export type Scopes = readonly [KeyScope, ...ReadonlyArray<KeyScope>]

/** Whether the route is a stream: it accepts a ticket in place of a key, and its WebSocket has no timeout. */
export const IsStream = Context.Reference("muster/api/IsStream", { defaultValue: () => false })

/**
 * Whether the route answers while the embedded node starts: its answer does not need that node. Other requests wait until
 * the node is connected.
 */
export const AnswersEarly = Context.Reference("muster/api/AnswersEarly", { defaultValue: () => false })

/** Whether daemons call the route all the time, so that a request is logged at debug level only. */
export const IsRoutine = Context.Reference("muster/api/IsRoutine", { defaultValue: () => false })

/** Whether the query may hold any bytes, because each parameter has a fall-back value. */
export const HasQueryFallbacks = Context.Reference("muster/api/HasQueryFallbacks", {
  defaultValue: () => false
})

/** Seconds for which a caller may ask the route to wait, on top of the time of every route. */
export const LongestWait = Context.Reference("muster/api/LongestWait", { defaultValue: () => 0 })

/** Bytes that a body may have where the setting is lower; default: the setting. */
export const LargeBody = Context.Reference("muster/api/LargeBody", { defaultValue: () => 0 })

/** The limit of requests of one key to the route; it replaces the general limit. */
export const RouteRateLimit = Context.Reference<KeyRateLimit | undefined>("muster/api/RouteRateLimit", {
  defaultValue: () => undefined
})

/** The task of a route, in one line. */
export const summary = (summary: string) => OpenApi.annotations({ summary })
