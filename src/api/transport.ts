import type { HttpClientError } from "effect/http"

/** Why no HTTP answer came back: bytes of something else did, TLS did not come about, or nothing came. */
export interface NoAnswer {
  readonly kind: "none" | "tls" | "protocol"
  /** Of the system or of TLS, such as ECONNREFUSED; empty where there is none. */
  readonly code: string
  readonly message: string
}

/** What the failure comes from, down to what has a code. */
const origin = (failure: unknown): { readonly code: string; readonly message: string } => {
  if (!(failure instanceof Error)) return { code: "", message: "" }
  const { cause, message } = failure
  if ("code" in failure && typeof failure.code === "string") return { code: failure.code, message }
  return cause instanceof Error ? origin(cause) : { code: "", message }
}

const tlsCode = /CERT|TLS|SSL|EPROTO|UNABLE_TO_|CRL_|HOSTNAME_MISMATCH/

/** No HTTP came back, but bytes did: something else speaks there. */
const otherProtocol = /^HPE_/

/** Reads the failure of a call that no answer came to. */
export const whyNoAnswer = (failure: HttpClientError.HttpClientError): NoAnswer => {
  const { code, message } = origin("cause" in failure.reason ? failure.reason.cause : undefined)
  const kind = tlsCode.test(code) ? "tls" : otherProtocol.test(code) ? "protocol" : "none"
  return { kind, code, message: message.split("\n")[0] ?? "" }
}
