/**
 * What a test run has once, such as a PostgreSQL server. It starts on the first request over a Unix socket, so that a
 * run without such tests does not start it.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Cause, Data, Effect, Exit, Schema, Scope } from "effect"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    /** The path of the socket that returns the URL of the server, with `*` for the name of the database. */
    readonly postgres: string
    /** The path of the socket that returns the path of the Docker engine's. */
    readonly docker: string
  }
}

type Name = "postgres" | "docker"

export class NotShared extends Data.TaggedError("NotShared")<{ readonly message: string }> {}

const Answer = Schema.fromJsonString(
  Schema.Struct({ address: Schema.optionalKey(Schema.String), failed: Schema.optionalKey(Schema.String) })
)

/** Starts something on the first request of a test, in the process that starts the tests; returns its end. */
export const provideShared = async (
  project: TestProject,
  name: Name,
  start: Effect.Effect<string, unknown, Scope.Scope>
) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-tests-"))
  const path = join(folder, `${name}.sock`)
  const scope = Scope.makeUnsafe()
  let started: Promise<Exit.Exit<string, unknown>> | undefined
  const asked = createServer((socket) => {
    socket.on("error", () => {})
    started ??= Effect.runPromiseExit(Scope.provide(start, scope))
    void started.then((exit) =>
      socket.end(
        JSON.stringify(Exit.isSuccess(exit) ? { address: exit.value } : { failed: Cause.pretty(exit.cause) })
      )
    )
  })
  await new Promise<void>((resolve) => asked.listen(path, () => resolve()))
  project.provide(name, path)
  return async () => {
    asked.close()
    await started
    await Effect.runPromise(Scope.close(scope, Exit.void))
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Returns the address of what this test run has once, in a test. */
export const sharedOfRun = (name: Name) =>
  Effect.flatMap(
    Effect.promise(() => import("vitest")),
    ({ inject }) =>
      Effect.callback<string, NotShared>((resume) => {
        const socket = connect(inject(name))
        let text = ""
        socket.setEncoding("utf8")
        socket.on("data", (chunk: string) => {
          text += chunk
        })
        socket.once("error", (cause) => resume(new NotShared({ message: String(cause) })))
        socket.once("end", () => {
          const { address, failed } = Schema.decodeSync(Answer)(text)
          resume(
            address === undefined
              ? new NotShared({ message: failed ?? "no answer" })
              : Effect.succeed(address)
          )
        })
      })
  )
