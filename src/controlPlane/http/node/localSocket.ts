/** The unix socket at which the service serves its own host: its file permissions decide which users may connect. */
import { chmodSync, lstatSync, mkdtempSync, renameSync, rmSync } from "node:fs"
import type { Server } from "node:http"
import { connect, createServer, type Server as NetServer, type Socket } from "node:net"
import { dirname, join } from "node:path"
import { Server as TlsServer } from "node:tls"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect, type Scope } from "effect"
import type { HttpServerRequest } from "effect/http"
import { whyNoSocket } from "../../../contract/domain/transport.ts"

const local = new WeakSet<Socket>()

/** Whether a request came over the socket: its sender is the owner of the data folder, or root. */
export const isLocalRequest = (request: HttpServerRequest.HttpServerRequest): boolean =>
  local.has(NodeHttpServerRequest.toIncomingMessage(request).socket)

/** Whether another process listens at a socket; a socket that a killed process has left refuses connections. */
const isServed = (path: string) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(path)
    const done = (served: boolean) => {
      socket.destroy()
      resume(Effect.succeed(served))
    }
    socket.once("connect", () => done(true)).once("error", () => done(false))
    return Effect.sync(() => socket.destroy())
  })

const reasonOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

const listenAt = (acceptor: NetServer, path: string) =>
  Effect.callback<void, string>((resume) => {
    const failed = (error: Error) => resume(Effect.fail(error.message))
    acceptor.once("error", failed)
    acceptor.listen(path, () => {
      acceptor.off("error", failed)
      resume(Effect.void)
    })
  })

const inodeOf = (path: string): number | undefined => lstatSync(path, { throwIfNoEntry: false })?.ino

/** Makes the socket in a folder of its own and moves it to its place: other users can connect at no moment. */
const open = Effect.fnUntraced(function* (acceptor: NetServer, path: string) {
  const made = yield* Effect.try({ try: () => mkdtempSync(join(dirname(path), ".s-")), catch: reasonOf })
  const first = join(made, "s")
  yield* listenAt(acceptor, first).pipe(
    Effect.andThen(
      Effect.try({
        try: () => {
          chmodSync(first, 0o600)
          renameSync(first, path)
        },
        catch: reasonOf
      })
    ),
    Effect.ensuring(Effect.sync(() => rmSync(made, { recursive: true, force: true })))
  )
  return inodeOf(path)
})

/** Serves at a unix socket of mode 0600 until the scope closes, in place of a killed service's socket. */
export const listenLocally = Effect.fnUntraced(function* (
  server: Server,
  path: string
): Effect.fn.Return<void, never, Scope.Scope> {
  const event = server instanceof TlsServer ? "secureConnection" : "connection"
  const acceptor = createServer({ allowHalfOpen: true }, (socket) => {
    local.add(socket)
    server.emit(event, socket)
  })
  const close = (inode: number | undefined) =>
    Effect.sync(() => {
      acceptor.close()
      // Another service may have replaced it.
      if (inode !== undefined && inodeOf(path) === inode) rmSync(path, { force: true })
    })
  const opened = Effect.gen(function* () {
    const impossible = whyNoSocket(path)
    if (impossible !== undefined) return yield* Effect.fail(impossible)
    if (yield* isServed(path)) return yield* Effect.fail(`another service serves ${path}`)
    return yield* Effect.acquireRelease(open(acceptor, path), close)
  })
  yield* Effect.catch(opened, (reason) =>
    Effect.logWarning(
      `there is no socket for commands on this host (${reason}): they need MUSTER_URL and MUSTER_API_KEY, or a shorter MUSTER_DATA_DIR of the service`
    )
  )
})
