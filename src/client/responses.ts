/** Responses that a client accepts: of the service itself, and bounded. Streams are bounded event by event. */
import { Effect, Stream } from "effect"
import { HttpClientError, type HttpClientResponse } from "effect/http"

/** Bytes of a body that is read as a whole. A list of 100,000 servers with all fields has about half. */
const LARGEST = 256 * 1024 * 1024
const LARGEST_ERROR = 1024 * 1024

/** A response that is not of the contract: a repetition does not help. */
export const unexpected = (response: HttpClientResponse.HttpClientResponse, description: string) =>
  new HttpClientError.HttpClientError({
    reason: new HttpClientError.DecodeError({ request: response.request, response, description })
  })

const readBounded = (response: HttpClientResponse.HttpClientResponse) =>
  Effect.suspend(() => {
    const chunks: Array<Uint8Array> = []
    let size = 0
    const largest = response.status >= 400 ? LARGEST_ERROR : LARGEST
    return response.stream.pipe(
      Stream.runForEach((chunk) => {
        size += chunk.length
        chunks.push(chunk)
        return size > largest
          ? Effect.fail(unexpected(response, `the body exceeds ${largest} bytes`))
          : Effect.void
      }),
      Effect.catchIf(
        ({ reason }) => reason._tag === "EmptyBodyError",
        () => Effect.void
      ),
      Effect.map(() => {
        const body = new Uint8Array(size)
        let at = 0
        for (const chunk of chunks.splice(0)) {
          body.set(chunk, at)
          at += chunk.length
        }
        return body.buffer
      })
    )
  })

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
