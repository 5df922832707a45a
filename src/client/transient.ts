import { Predicate } from "effect"
import { HttpClientError } from "effect/http"

/** The failures after which a client repeats a read: a later attempt may succeed. */
const tags = ["TooManyRequests", "InternalError", "NodeFailure", "Unavailable", "TimedOut"] as const

export type Transient = HttpClientError.HttpClientError | { readonly _tag: (typeof tags)[number] }

/** Statuses that proxies respond with while the service cannot be reached, besides those of 500 and above. */
const ofProxy = [408, 429]

const isOfProxy = (status: number) => status >= 500 || ofProxy.includes(status)

const breaksOff = ({ reason, response }: HttpClientError.HttpClientError) =>
  reason._tag === "TransportError" ||
  // A body that could not be read to its end; an unexpected one has no cause.
  (reason._tag === "DecodeError" && reason.cause !== undefined) ||
  (response !== undefined && isOfProxy(response.status))

/** Whether a repetition may succeed. It does not after an unexpected response: another program runs at the address. */
export const isTransient = <E>(error: E): error is Extract<E, Transient> =>
  HttpClientError.isHttpClientError(error)
    ? breaksOff(error)
    : tags.some((tag) => Predicate.isTagged(error, tag))
