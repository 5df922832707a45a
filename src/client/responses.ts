/** Responses that a client accepts: of the service itself, and bounded; and failures that it repeats. */
import { Effect, Predicate, Stream } from "effect"
import { HttpClientError, type HttpClientResponse } from "effect/http"
import { backoff } from "../shared/work/backoff.ts"

/** Bytes of a body that is read as a whole. A list of 100,000 servers with all fields has about half. */
const LARGEST = 256 * 1024 * 1024
const LARGEST_ERROR = 1024 * 1024

/** A response that is not of the contract: a repetition does not help. */
export const unexpected = (response: HttpClientResponse.HttpClientResponse, description: string) =>
  new HttpClientError.HttpClientError({
    reason: new HttpClientError.DecodeError({ request: response.request, response, description })
  })

const readBounded = (response: HttpClientResponse.HttpClientResponse) => {
  const largest = response.status >= 400 ? LARGEST_ERROR : LARGEST
  return response.stream.pipe(
    Stream.catchIf(
      ({ reason }) => reason._tag === "EmptyBodyError",
      () => Stream.empty
    ),
    Stream.limitBytes(largest, () => Stream.fail(unexpected(response, `the body exceeds ${largest} bytes`))),
    Stream.mkUint8Array,
    Effect.map(({ buffer }) => buffer)
  )
}

/** The body is read once: the derived client reads it as bytes. */
const withBoundedBody = (
  response: HttpClientResponse.HttpClientResponse
): HttpClientResponse.HttpClientResponse => {
  const arrayBuffer = readBounded(response)
  const text = Effect.map(arrayBuffer, (body) => new TextDecoder().decode(body))
  return Object.create(response, { arrayBuffer: { value: arrayBuffer }, text: { value: text } })
}

/** A failure that is not of the service but of a proxy before it. */
export const isOfProxy = (status: number, contentType = "") =>
  status >= 500 && !contentType.startsWith("application/json")

/** Browsers hide the status of a redirect. */
const isRedirect = (status: number) => status === 0 || (status >= 300 && status < 400 && status !== 304)

/** Returns the response with a bounded body, or fails if it is not of the service. */
export const accept = (
  response: HttpClientResponse.HttpClientResponse
): Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError> => {
  const { headers, request, status } = response
  if (isOfProxy(status, headers["content-type"])) {
    return Effect.fail(
      new HttpClientError.HttpClientError({
        reason: new HttpClientError.StatusCodeError({ request, response })
      })
    )
  }
  // A redirect would turn a change into a read, and send its body to another address.
  if (isRedirect(status)) {
    const to = headers.location === undefined ? "" : ` to ${headers.location.slice(0, 200)}`
    return Effect.fail(unexpected(response, `redirected${to}: set baseUrl to the address of the service`))
  }
  return Effect.succeed(withBoundedBody(response))
}

/** The failures after which a client repeats a read: a later attempt may succeed. */
const tags = ["TooManyRequests", "InternalError", "NodeFailure", "Unavailable", "TimedOut"] as const

export type Transient = HttpClientError.HttpClientError | { readonly _tag: (typeof tags)[number] }

/** Statuses below 500 with which a proxy responds while it cannot reach the service. */
const ofProxy = [408, 429]

const isStatusOfProxy = (status: number) => status >= 500 || ofProxy.includes(status)

const breaksOff = ({ reason, response }: HttpClientError.HttpClientError) =>
  reason._tag === "TransportError" ||
  // A body that could not be read to its end; an unexpected one has no cause.
  (reason._tag === "DecodeError" && reason.cause !== undefined) ||
  (response !== undefined && isStatusOfProxy(response.status))

/** Whether a repetition may succeed. It does not after an unexpected response: another program runs at the address. */
export const isTransient = <E>(error: E): error is Extract<E, Transient> =>
  HttpClientError.isHttpClientError(error)
    ? breaksOff(error)
    : tags.some((tag) => Predicate.isTagged(error, tag))

/** The pauses after breaks of a connection. */
export const retries = backoff({ first: "200 millis", longest: "10 seconds" })
