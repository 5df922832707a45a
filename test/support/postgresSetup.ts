/**
 * One PostgreSQL for a whole test run. It starts on the first request over a Unix socket, so that a run without such
 * tests does not start it.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Exit, Scope } from "effect"
import type { TestProject } from "vitest/node"
import { type PostgresServer, startPostgres } from "./postgres.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** The path of the socket that returns the URL of the server, with `*` for the name of the database. */
    readonly postgres: string
  }
}

export default async (project: TestProject) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-tests-"))
  const path = join(folder, "postgres.sock")
  const scope = Scope.makeUnsafe()
  let started: Promise<PostgresServer> | undefined
  const asked = createServer((socket) => {
    socket.on("error", () => {})
    started ??= Effect.runPromise(Scope.provide(startPostgres(), scope))
    started.then(
      (server) => socket.end(JSON.stringify({ url: server.url("*") })),
      (cause: unknown) => socket.end(JSON.stringify({ failed: String(cause) }))
    )
  })
  await new Promise<void>((resolve) => asked.listen(path, () => resolve()))
  project.provide("postgres", path)
  return async () => {
    asked.close()
    await started?.catch(() => undefined)
    await Effect.runPromise(Scope.close(scope, Exit.void))
    rmSync(folder, { recursive: true, force: true })
  }
}
