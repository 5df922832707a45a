/** A receiver of webhooks: a real HTTP server that answers as the test says. */
import { createHmac } from "node:crypto"
import { createServer, type IncomingHttpHeaders } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect } from "effect"

/** A received request. */
export interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** The status of a response with its headers; `hang`: no response. */
export type Reply = number | { readonly status: number; readonly headers: Record<string, string> } | "hang"

/** Returns the reply to a request. */
type Respond = (request: Received) => Reply

/** Starts a receiver for the scope; `respond` may be changed at any time. */
export const receiver = Effect.gen(function* () {
  const received: Array<Received> = []
  const state: { respond: Respond } = { respond: () => 204 }
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const made = createServer((request, response) => {
        let body = ""
        request.setEncoding("utf8")
        request.on("data", (chunk: string) => {
          body += chunk
        })
        request.on("end", () => {
          const whole = { path: request.url ?? "", headers: request.headers, body }
          received.push(whole)
          const reply = state.respond(whole)
          if (reply === "hang") return
          const { headers, status } = typeof reply === "number" ? { status: reply, headers: {} } : reply
          response.writeHead(status, headers).end()
        })
      })
      made.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (made) =>
      Effect.sync(() => {
        made.close()
        made.closeAllConnections()
      })
  )
  // A TCP server has such an address.
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    received: (): ReadonlyArray<Received> => received,
    respond: (respond: Respond) =>
      Effect.sync(() => {
        state.respond = respond
      })
  }
})

/** Whether the signature of the Standard Webhooks specification fits the request. */
export const isSigned = ({ body, headers }: Received, secret: string): boolean => {
  const content = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`
  const key = Buffer.from(secret.replace("whsec_", ""), "base64")
  const expected = `v1,${createHmac("sha256", key).update(content).digest("base64")}`
  return String(headers["webhook-signature"]).split(" ").includes(expected)
}

/** Short form of received messages: the topic and the payload. */
export const messages = (received: ReadonlyArray<Received>, server?: string): ReadonlyArray<string> =>
  received.flatMap(({ body }) => {
    const { Data, Topic } = JSON.parse(body)
    if (server !== undefined && Data.server_id !== server) return []
    return [typeof Data.payload === "string" ? Data.payload : Topic]
  })
