/** Clients of the tests, and a service that answers from a script. */
import { createServer, type ServerResponse } from "node:http"
import { Effect, Redacted } from "effect"
import { MusterClient } from "../../src/client/index.ts"

/** A client of the service at an address. */
export const clientOf = (baseUrl: string, key = "none") =>
  Effect.provide(MusterClient, MusterClient.layer({ baseUrl, key: Redacted.make(key) }))

/** A service that answers each request with the next response of a script; `asked`: the queries so far. */
export const scripted = (...script: ReadonlyArray<(response: ServerResponse) => void>) =>
  Effect.acquireRelease(
    Effect.callback<{
      readonly url: string
      readonly asked: ReadonlyArray<string>
      readonly close: () => void
    }>((resume) => {
      const asked: Array<string> = []
      const server = createServer((request, response) => {
        const answer = script[asked.length]
        asked.push(new URL(`http://h${request.url}`).search)
        answer?.(response)
      }).listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" ? address?.port : 0
        const close = () => {
          server.closeAllConnections()
          server.close()
        }
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, asked, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )
