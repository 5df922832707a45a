/** The SSH server of SFTP: connections, their bounds and their end (spec 10.6). Read next: `logins.ts`, `SftpSession.ts`. */
import { createServer, type Socket } from "node:net"
import { Cause, Deferred, Effect, Exit, FiberSet, Latch, Layer, type Scope } from "effect"
import type * as Ssh from "ssh2"
import { StartError } from "../../shared/config/StartError.ts"
import { Tally } from "../../shared/work/Tally.ts"
import { countedAddress, shownAddress } from "../http/node/clients.ts"
import { CurrentPrincipal } from "../http/Principal.ts"
import { answerAttempts, type LoggedIn, SftpLogins } from "./logins.ts"
import { loadSsh, SftpHostKey } from "./SftpHostKey.ts"
import { SftpListener, type SftpSettings } from "./SftpListener.ts"
import { serveSftp } from "./SftpSession.ts"
import { makeVolume } from "./Volume.ts"

/** Time until the login. */
const HANDSHAKE_MILLIS = 20_000
/** Connections of one address, and of all, that have not logged in. */
const STRANGERS_PER_ADDRESS = 16
const STRANGERS = 128
const SESSIONS_PER_KEY = 16
const SESSIONS = 256
/** Channels of one connection that are open at a time. Some clients try to run a command first. */
const CHANNELS = 4
/** Bytes that a client has not read, or has sent beyond its window: the connection ends. */
const MOST_BYTES = 4 * 1024 * 1024

/** A client that is silent is asked this often, in ms; after so many questions without an answer the connection ends. */
const KEEP_ALIVE = { keepaliveInterval: 15_000, keepaliveCountMax: 3 }
/** Time for the requests that have arrived when the service stops. */
const DRAIN = "5 seconds"

/** No algorithm with SHA-1, CBC or a compression. */
const algorithms: Ssh.Algorithms = {
  kex: [
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group14-sha256"
  ],
  serverHostKey: ["ssh-ed25519"],
  cipher: ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr", "aes128-ctr"],
  hmac: ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512"],
  compress: ["none"]
}

/** Places of connections, before and after their login. */
const makePlaces = () => {
  const strangers = new Tally<string>()
  const byKey = new Tally<string>()
  let unknown = 0
  let sessions = 0
  return {
    /** Whether another connection of the address is accepted. */
    admits: (address: string) => unknown < STRANGERS && strangers.of(address) < STRANGERS_PER_ADDRESS,
    arrive: (address: string) => {
      unknown += 1
      strangers.add(address)
    },
    known: (address: string) => {
      unknown -= 1
      strangers.remove(address)
    },
    /** Takes a place of a session; false: none is left. */
    begin: (key: string) => {
      if (sessions >= SESSIONS || byKey.of(key) >= SESSIONS_PER_KEY) return false
      sessions += 1
      byKey.add(key)
      return true
    },
    end: (key: string) => {
      sessions -= 1
      byKey.remove(key)
    }
  }
}

/** Serves one connection until it ends. */
const makeServing = Effect.gen(function* () {
  const { key } = yield* SftpHostKey
  const logins = yield* SftpLogins
  const ssh = yield* loadSsh
  const places = makePlaces()
  const stopping = yield* Deferred.make<void>()

  const serve = Effect.fnUntraced(function* (socket: Socket) {
    const hostKey = yield* key
    const address = socket.remoteAddress ?? ""
    const counted = countedAddress(address)
    const ended = yield* Deferred.make<void>()
    const end = () => void Deferred.doneUnsafe(ended, Exit.void)
    let client: Ssh.Connection | undefined
    let isStranger = true
    let session: LoggedIn | undefined
    const accepted = () => {
      if (isStranger) places.known(counted)
      isStranger = false
    }
    places.arrive(counted)
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        accepted()
        if (session !== undefined) places.end(session.principal.key_id)
        client?.end()
        socket.destroySoon()
        // A client that reads nothing does not delay the end.
        setTimeout(() => socket.destroy(), 1000).unref()
      })
    )
    const run =
      yield* FiberSet.makeRuntime<Exclude<Effect.Services<ReturnType<typeof makeVolume>>, Scope.Scope>>()
    const channels = new Set<Ssh.ServerChannel>()
    const idle = Latch.makeUnsafe(true)
    let opened = 0

    const serveChannel = (
      channel: Ssh.ServerChannel,
      volume: Effect.Success<ReturnType<typeof makeVolume>>
    ) => {
      channels.add(channel)
      idle.closeUnsafe()
      channel.on("error", end)
      return serveSftp(channel, volume, {
        unsent: () => socket.writableLength,
        onDrain: (drained) => void socket.on("drain", drained),
        stopping: Deferred.await(stopping)
      }).pipe(
        Effect.tapCause((cause) =>
          Cause.hasDies(cause) ? Effect.logError("a session of SFTP failed", cause) : Effect.void
        ),
        Effect.ensuring(
          Effect.sync(() => {
            channels.delete(channel)
            if (channels.size === 0) idle.openUnsafe()
            channel.exit(0)
            channel.end()
          })
        )
      )
    }

    const onLogin = Effect.fnUntraced(function* (
      connection: Ssh.Connection,
      accept: () => void,
      { ends, principal, server }: LoggedIn
    ) {
      const volume = yield* makeVolume({ principal, address: shownAddress(address) }, server)
      connection.on("session", (acceptSession, reject) => {
        if (opened >= CHANNELS) return reject()
        opened += 1
        const session = acceptSession()
        session.on("close", () => {
          opened -= 1
        })
        session.once("subsystem", (acceptChannel, rejectChannel, { name }) => {
          if (name !== "sftp" || channels.size > 0) return rejectChannel()
          run(Effect.provideService(serveChannel(acceptChannel(), volume), CurrentPrincipal, principal))
        })
      })
      accept()
      yield* Effect.raceFirst(ends, volume.ended)
    })

    const settings = { hostKeys: [hostKey.text], ident: "Muster", algorithms, ...KEEP_ALIVE }
    const server = new ssh.Server(settings, (connection) => {
      client = connection
      connection.on("error", end)
      const accept = (attempt: Ssh.AuthContext, found: LoggedIn) => {
        if (!places.begin(found.principal.key_id)) return end()
        session = found
        accepted()
        run(
          onLogin(connection, () => attempt.accept(), found).pipe(
            Effect.scoped,
            Effect.provideService(CurrentPrincipal, found.principal),
            Effect.ensuring(Effect.sync(end))
          )
        )
      }
      answerAttempts(connection, ssh.utils, {
        end,
        check: (attempt, credential, refused) =>
          run(
            Effect.match(logins.login(attempt.username, credential, address), {
              onSuccess: (found) => accept(attempt, found),
              onFailure: refused
            })
          ),
        knows: (fingerprint, done) => run(Effect.map(logins.knows(fingerprint), done))
      })
    })
    socket.setNoDelay(true)
    socket.on("error", end).on("close", end)
    server.injectSocket(socket)
    socket.on("data", () => {
      // One read a turn of the event loop: the system may have megabytes, and other requests wait while they are decrypted.
      socket.pause()
      setImmediate(() => socket.resume())
      if (socket.writableLength > MOST_BYTES) return end()
      for (const channel of channels) if (channel.readableLength > MOST_BYTES) end()
    })
    const late = Effect.andThen(
      Effect.sleep(HANDSHAKE_MILLIS),
      Effect.suspend(() => (session === undefined ? Effect.void : Effect.never))
    )
    const drained = Effect.andThen(Deferred.await(stopping), idle.await)
    yield* Effect.raceAllFirst([Deferred.await(ended), late, drained])
  }, Effect.scoped)

  return {
    serve,
    stop: Deferred.succeed(stopping, undefined),
    admits: (address: string) => places.admits(countedAddress(address))
  }
})

/** Listens for SFTP until the layer ends, which ends all sessions. @error StartError the port cannot be used */
export const SftpServer = (settings: SftpSettings) =>
  Layer.effect(
    SftpListener,
    Effect.gen(function* () {
      const { host, port } = settings
      const { key } = yield* SftpHostKey
      const { admits, serve, stop } = yield* makeServing
      const connections = yield* FiberSet.make<void>()
      const run = yield* FiberSet.runtime(connections)<Effect.Services<ReturnType<typeof serve>>>()
      yield* Effect.addFinalizer(() =>
        Effect.andThen(stop, Effect.timeoutOption(FiberSet.awaitEmpty(connections), DRAIN))
      )
      const acceptor = yield* Effect.acquireRelease(
        Effect.sync(() =>
          createServer((socket) => {
            if (admits(socket.remoteAddress ?? "")) run(serve(socket))
            else socket.destroy()
          })
        ),
        (acceptor) => Effect.sync(() => acceptor.close())
      )
      acceptor.maxConnections = SESSIONS + STRANGERS
      yield* Effect.callback<void, StartError>((resume) => {
        acceptor.once("error", ({ message }) =>
          resume(
            Effect.fail(
              new StartError({
                message: `SFTP cannot listen on ${host}:${port} (${message}); set MUSTER_SFTP_PORT`
              })
            )
          )
        )
        acceptor.listen(port, host, () => resume(Effect.void))
      })
      const bound = acceptor.address()
      const own = typeof bound === "object" && bound !== null ? bound.port : port
      const hostKey = yield* key
      yield* Effect.logInfo(`SFTP listens on ${host}:${own}, its host key is ${hostKey.fingerprint}`)
      return SftpListener.at({ ...settings, port: own }, hostKey)
    })
  )
