import { createServer } from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Engine } from "../../../../src/daemon/runtime/docker/Engine.ts"
import { until } from "../../../support/eventually.ts"
import { folder } from "./support.ts"

interface Answering {
  readonly version?: string
  readonly status?: number
  /** Receives the path of each request except `/_ping`; such a request gets no complete answer. */
  readonly onRequest?: (path: string) => void
}

/** A server at a socket that answers pings as an engine does. */
const standIn = Effect.fnUntraced(function* (answering: Answering) {
  const socket = join(yield* folder, "engine.sock")
  const server = createServer((request, response) => {
    if (request.url === "/_ping") {
      response.writeHead(answering.status ?? 200, { "api-version": answering.version ?? "1.41" })
      return response.end("OK")
    }
    answering.onRequest?.(request.url ?? "")
    response.writeHead(200).write("{")
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(socket, () => resume(Effect.void))
    }),
    () =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  return { socket, breakOff: Effect.sync(() => server.closeAllConnections()) }
})

const withEngine = <A, E, R>(socket: string, effect: Effect.Effect<A, E, R | Engine>) =>
  Effect.provide(effect, Engine.layer({ socket }))

describe("Docker runtime: the engine", () => {
  it.live("an engine that is too old, refuses or is missing is an error with the cause", () =>
    Effect.gen(function* () {
      const ping = Effect.flatMap(Engine, (engine) => Effect.flip(engine.ping))
      const old = yield* standIn({ version: "1.39" })
      assert.strictEqual(
        (yield* withEngine(old.socket, ping)).message,
        `the Docker engine at ${old.socket} is too old: 20.10 or newer is needed`
      )
      const refuses = yield* standIn({ status: 500 })
      assert.include((yield* withEngine(refuses.socket, ping)).message, "status 500")
      const root = yield* folder
      const error = yield* withEngine(join(root, "none"), ping)
      assert.strictEqual(
        error.message,
        `the Docker engine does not answer at ${join(root, "none")}: no such socket`
      )
    }).pipe(Effect.scoped)
  )

  it.live("API versions are compared by number", () =>
    Effect.gen(function* () {
      for (const version of ["1.41", "1.47", "1.52", "1.100", "2.0"]) {
        const { socket } = yield* standIn({ version })
        yield* withEngine(
          socket,
          Effect.flatMap(Engine, (engine) => engine.ping)
        )
      }
    }).pipe(Effect.scoped)
  )

  it.live("a broken connection ends the wait for a container", () =>
    Effect.gen(function* () {
      const paths: Array<string> = []
      const { breakOff, socket } = yield* standIn({ onRequest: (path) => paths.push(path) })
      yield* withEngine(
        socket,
        Effect.gen(function* () {
          const engine = yield* Engine
          const waits = yield* Effect.forkChild(engine.ended("abc"))
          yield* until("it asks", () => paths.length === 1)
          assert.deepStrictEqual(paths, ["/containers/abc/wait"])
          yield* breakOff
          yield* Fiber.join(waits)
        })
      )
    }).pipe(Effect.scoped)
  )
})
