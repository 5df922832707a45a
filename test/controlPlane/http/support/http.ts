/** Helpers of the tests of the HTTP contract: the error body, definitions, and raw connections. */
import { connect } from "node:net"
import { assert } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import WebSocket from "ws"
import { type ErrorStatus, reasonPhrases } from "../../../../src/contract/domain/ApiError.ts"
import { blueprintFile, consoleServer, softwareFile } from "../../../support/definitions.ts"
import { Muster } from "../../../support/Muster.ts"
import type { Answer, Service } from "../../../support/Service.ts"
import { expectStatus, statusOf } from "../../../support/servers.ts"

/** A service without an embedded node. */
export const noNode = { MUSTER_EMBEDDED_NODE: "false" }

/** Definitions of a small server that installs at once, and of one whose installation never ends. */
export const games = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "endless.yml": softwareFile("endless", { install: { script: "echo begun\nwhile :; do sleep 1; done" } })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false }),
    "endless.yml": blueprintFile("endless", "endless")
  }
}

export const options = { excludeTestServices: true, timeout: "120 seconds" } as const

/** One service with {@link games} for the tests of a file. */
export const service = (env: Record<string, string> = {}) =>
  Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26100-26199", ...env })

/** The keys of an object, sorted. */
export const keysOf = (value: object): ReadonlyArray<string> => Object.keys(value).toSorted()

const isErrorStatus = (status: number): status is ErrorStatus => status in reasonPhrases

/** Asserts that the response has exactly the error body of section 7, and returns the body. */
export const assertError = (
  answer: Pick<Answer, "status" | "text" | "json"> & {
    readonly headers: { get(name: string): string | null }
  },
  status: ErrorStatus,
  detail?: string | RegExp
): Record<string, string> => {
  assert.strictEqual(answer.status, status, answer.text)
  assert.isTrue(isErrorStatus(answer.status))
  assert.strictEqual(answer.headers.get("content-type"), "application/json")
  const body: Record<string, string> = answer.json
  assert.deepStrictEqual(keysOf(body), ["code", "detail", "hint", "request_id", "status"])
  assert.strictEqual(body.code, String(status))
  assert.strictEqual(body.status, reasonPhrases[status])
  assert.notStrictEqual(body.detail, "")
  assert.notStrictEqual(body.hint, "")
  assert.strictEqual(body.request_id, answer.headers.get("x-request-id"))
  if (typeof detail === "string") assert.strictEqual(body.detail, detail)
  else if (detail !== undefined) assert.match(body.detail ?? "", detail)
  return body
}

/** The head and the body of a response received as bytes. */
export interface RawAnswer extends Pick<Answer, "status" | "text" | "json"> {
  readonly reason: string
  readonly headers: { get(name: string): string | null }
}

/** Parses a response with `Connection: close` and a length, whose body is the rest of the bytes. */
export const parseAnswer = (bytes: string): RawAnswer => {
  const end = bytes.indexOf("\r\n\r\n")
  assert.notStrictEqual(end, -1, `no answer: ${JSON.stringify(bytes)}`)
  const [first = "", ...lines] = bytes.slice(0, end).split("\r\n")
  const match = /^HTTP\/1\.1 (\d{3}) (.*)$/.exec(first)
  const headers = new Map(
    lines.map((line) => [
      line.slice(0, line.indexOf(":")).toLowerCase(),
      line.slice(line.indexOf(":") + 1).trim()
    ])
  )
  const text = bytes.slice(end + 4)
  return {
    status: Number(match?.[1]),
    reason: match?.[2] ?? "",
    headers: { get: (name) => headers.get(name) ?? null },
    text,
    json: text.startsWith("{") ? JSON.parse(text) : undefined
  }
}

/**
 * Sends bytes over a new connection and returns all bytes received until the service closes it. `then` is sent once its
 * `after` has arrived; `end`: the bytes are the last that the client sends.
 */
export const exchange = (
  api: Pick<Service, "url">,
  bytes: string | Uint8Array,
  then?: "end" | { readonly after: string; readonly send: string }
): Effect.Effect<string> =>
  Effect.callback<string>((resume) => {
    const { hostname, port } = new URL(api.url)
    const socket = connect({ host: hostname, port: Number(port) }, () =>
      then === "end" ? socket.end(bytes) : socket.write(bytes)
    )
    let received = ""
    socket.setEncoding("latin1")
    socket.on("data", (chunk: string) => {
      const before = received
      received += chunk
      if (typeof then === "object" && received.includes(then.after) && !before.includes(then.after)) {
        socket.write(then.send)
      }
    })
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed(received)))
    return Effect.sync(() => socket.destroy())
  })

/** {@link exchange}, with the response parsed. */
export const raw = (api: Pick<Service, "url">, bytes: string | Uint8Array): Effect.Effect<RawAnswer> =>
  Effect.map(exchange(api, bytes), parseAnswer)

/** The bytes of a request with `Connection: close`. */
export const rawRequest = (
  method: string,
  target: string,
  headers: Readonly<Record<string, string>> = {},
  body = ""
): string => {
  const all = { host: "localhost", connection: "close", ...headers }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${target} HTTP/1.1\r\n${lines.join("")}\r\n${body}`
}

export const bearer = (api: Pick<Service, "key">) => ({ authorization: `Bearer ${api.key}` })

/** Deletes a server of {@link Muster} and waits until it is gone. */
export const removed = Effect.fnUntraced(function* (id: string) {
  const api = yield* Muster
  const answer = yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
  assert.strictEqual(answer.text, "")
  assert.strictEqual(yield* statusOf(api, id), "gone")
})

/** A WebSocket and its received messages; fails with the status of a refusal. */
export const socket = (api: Service, path: string, headers: Record<string, string> = bearer(api)) =>
  Effect.gen(function* () {
    const ws = yield* Effect.acquireRelease(
      Effect.sync(() => new WebSocket(`${api.url.replace("http", "ws")}${path}`, { headers })),
      (it) => Effect.sync(() => it.terminate())
    )
    const messages: Array<string> = []
    ws.on("error", () => {})
    ws.on("message", (data) => messages.push(data.toString()))
    yield* Effect.callback<void, number | undefined>((resume) => {
      ws.once("open", () => resume(Effect.void))
      ws.once("unexpected-response", (_, response) => resume(Effect.fail(response.statusCode)))
    })
    return { ws, messages: () => messages }
  }) satisfies Effect.Effect<unknown, number | undefined, Scope.Scope>
