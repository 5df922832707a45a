import { Effect, Schema } from "effect"
import { HttpClientError } from "effect/http"

/** The reason why a call has no HTTP response: another protocol, a TLS failure, or no response at all. */
export interface NoAnswer {
  readonly kind: "none" | "tls" | "protocol"
  /** The code of the system or of TLS, such as ECONNREFUSED; empty: none. */
  readonly code: string
  readonly message: string
}

/** Returns the innermost cause that has a code. */
const origin = (failure: unknown): { readonly code: string; readonly message: string } => {
  if (!(failure instanceof Error)) return { code: "", message: "" }
  const { cause, message } = failure
  if ("code" in failure && typeof failure.code === "string") return { code: failure.code, message }
  return cause instanceof Error ? origin(cause) : { code: "", message }
}

const tlsCode = /CERT|TLS|SSL|EPROTO|UNABLE_TO_|CRL_|HOSTNAME_MISMATCH/

/** Bytes arrived that are not HTTP: another protocol runs at the address. */
const otherProtocol = /^HPE_/

export const whyNoAnswer = (failure: HttpClientError.HttpClientError): NoAnswer => {
  const { code, message } = origin("cause" in failure.reason ? failure.reason.cause : undefined)
  const kind = tlsCode.test(code) ? "tls" : otherProtocol.test(code) ? "protocol" : "none"
  return { kind, code, message: message.split("\n")[0] ?? "" }
}

/** Turns the defect of an undecodable body into a failure, because another program may run at the address. */
export const undecodableFails = <A, E, R>(
  call: Effect.Effect<A, E, R>
): Effect.Effect<A, E | HttpClientError.HttpClientError | Schema.SchemaError, R> =>
  Effect.catchDefect(
    call,
    (defect): Effect.Effect<never, HttpClientError.HttpClientError | Schema.SchemaError> =>
      HttpClientError.isHttpClientError(defect) || Schema.isSchemaError(defect)
        ? Effect.fail(defect)
        : Effect.die(defect)
  )
