/** Requests whose responses are checked for the form that every response has. */
import { Agent, type IncomingMessage, request } from "node:http"
import { Effect } from "effect"
import { reasonPhrases } from "../../src/contract/domain/ApiError.ts"
import { CLIENT_TIMEOUT_MILLIS } from "./settings.ts"

export interface HttpAnswer {
  readonly status: number
  readonly text: string
  readonly malformed: string | undefined
}

export interface NoAnswer {
  readonly lost: string
}

/** The reason if the client did not wait for the response. */
export const ABANDONED = "abandoned"

export interface HttpRequest {
  readonly method: string
  readonly path: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

const fields = ["code", "detail", "hint", "request_id", "status"]

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns the first violation of the form of every response (spec 1); undefined: none. */
export const malformation = (
  status: number,
  text: string,
  header: (name: string) => string | undefined
): string | undefined => {
  const requestId = header("x-request-id")
  if (requestId === undefined) return "no X-Request-Id"
  if (status < 400) return undefined
  if (header("content-type") !== "application/json") return `an error of type ${header("content-type")}`
  const body = parse(text)
  if (typeof body !== "object" || body === null) return `an error with the body ${text}`
  const entries = new Map<string, unknown>(Object.entries(body))
  if ([...entries.keys()].toSorted().join() !== fields.join())
    return `an error with the fields ${[...entries.keys()]}`
  const phrase = new Map<string, string>(Object.entries(reasonPhrases)).get(String(status))
  if (entries.get("code") !== String(status) || entries.get("status") !== phrase)
    return `${status} says ${entries.get("code")} ${entries.get("status")}`
  if (entries.get("request_id") !== requestId)
    return `request ids ${requestId} and ${entries.get("request_id")}`
  return entries.get("detail") === "" || entries.get("hint") === "" ? "an empty detail or hint" : undefined
}

/** A client with its own keep-alive connections. */
export const makeClient = Effect.fnUntraced(function* (key: string) {
  const agent = yield* Effect.acquireRelease(
    Effect.sync(() => new Agent({ keepAlive: true })),
    (it) => Effect.sync(() => it.destroy())
  )
  /** @param patience timeout in milliseconds, if it is below that of the service: the request is then abandoned */
  return (
    url: string,
    requested: HttpRequest,
    timeoutMillis?: number
  ): Effect.Effect<HttpAnswer | NoAnswer> =>
    Effect.callback<HttpAnswer | NoAnswer>((resume) => {
      const body = requested.body === undefined ? undefined : JSON.stringify(requested.body)
      const sent = request(
        `${url}${requested.path}`,
        {
          agent,
          method: requested.method,
          headers: {
            authorization: `Bearer ${key}`,
            ...(body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) }),
            ...requested.headers
          }
        },
        (response: IncomingMessage) => {
          let text = ""
          response.setEncoding("utf8")
          response.on("data", (chunk: string) => {
            text += chunk
          })
          response.on("error", () => {})
          response.on("close", () => {
            const status = response.statusCode ?? 0
            const header = (name: string) => {
              const value = response.headers[name]
              return Array.isArray(value) ? value.join() : value
            }
            const malformed = malformation(status, text, header)
            resume(Effect.succeed(response.complete ? { status, text, malformed } : { lost: "cut off" }))
          })
        }
      )
      sent.on("error", (error: NodeJS.ErrnoException) =>
        resume(
          Effect.succeed({ lost: `${error.code ?? error.message}${sent.reusedSocket ? ", reused" : ""}` })
        )
      )
      sent.end(body)
      return Effect.sync(() => sent.destroy())
    }).pipe(
      Effect.timeoutOrElse({
        duration: timeoutMillis ?? CLIENT_TIMEOUT_MILLIS,
        orElse: () => Effect.succeed({ lost: timeoutMillis === undefined ? "no answer in time" : ABANDONED })
      })
    )
})

export type Client = Effect.Success<ReturnType<typeof makeClient>>
