import { connect } from "node:net"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { WebSocket } from "@effect/platform-node/NodeWS"
import { Context, Effect, Layer, Schedule, Stream } from "effect"
import { HttpClient, HttpClientError } from "effect/http"
import { Socket } from "effect/socket"
import { CommandLogging } from "../../app/logging.ts"
import { MusterClient, WaitTimedOut } from "../../client/index.ts"
import { Platform } from "../../client/MusterClient.ts"
import { isOfProxy, isTransient } from "../../client/responses.ts"
import { whyNoAnswer } from "../../contract/api/noAnswer.ts"
import { baseUrlOf, socketPathOf } from "../../contract/domain/transport.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { CommandError, statusOf } from "./failures.ts"
import { CommandTarget } from "./target.ts"
import { enterUserFolder, note } from "./terminal.ts"

const MAKE_A_KEY = "`muster keys create --name <name>` beside the service makes one"

/** @param socket path of the socket, if the service has one */
const platformFor = (socket: string | undefined) =>
  socket === undefined
    ? Platform
    : Layer.merge(
        NodeHttpClient.layerNodeHttpOptions({ socketPath: socket }),
        Layer.succeed(Socket.WebSocketConstructor)(
          (url) => new WebSocket(url, { createConnection: () => connect(socket) })
        )
      )

/** A request that got no response from the service, and the time of the first one in a row ({@link elapsedMillis}). */
interface Break {
  readonly since: number
  readonly failure: HttpClientError.HttpClientError
  /** Says that the service is back, if the user knows of the break. */
  sayBack: Effect.Effect<void> | undefined
}

/** Whether the requests of a command reach the service. */
class Reachability extends Context.Service<
  Reachability,
  {
    /** The requests since the last response, unless the last request got one. */
    readonly broken: () => Break | undefined
  }
>()("muster/cli/Reachability") {}

const WatchedPlatform = Layer.effectContext(
  Effect.gen(function* () {
    const client = yield* HttpClient.HttpClient
    let broken: Break | undefined
    const breaks = (failure: HttpClientError.HttpClientError) =>
      Effect.map(elapsedMillis, (now) => {
        broken ??= { since: now, sayBack: undefined, failure }
      })
    const watched = HttpClient.transformResponse(client, (sent) =>
      Effect.tapError(sent, breaks).pipe(
        Effect.tap((response) => {
          const { headers, request, status } = response
          if (isOfProxy(status, headers["content-type"])) {
            const reason = new HttpClientError.StatusCodeError({ request, response })
            return breaks(new HttpClientError.HttpClientError({ reason }))
          }
          const { sayBack = Effect.void } = broken ?? {}
          broken = undefined
          // Before the command prints the response.
          return sayBack
        })
      )
    )
    return Context.make(HttpClient.HttpClient, watched).pipe(
      Context.add(Reachability, Reachability.of({ broken: () => broken }))
    )
  })
)

export const CommandClient = Layer.unwrap(
  Effect.map(Effect.tap(CommandTarget.find, enterUserFolder), (found) =>
    Layer.merge(
      MusterClient.layerNoDeps({
        baseUrl: baseUrlOf(found.url),
        ...(found.key === undefined ? {} : { key: found.key })
      }).pipe(Layer.provideMerge(WatchedPlatform), Layer.provideMerge(platformFor(socketPathOf(found.url)))),
      Layer.succeed(CommandTarget, CommandTarget.of(found))
    )
  )
).pipe(Layer.provideMerge(CommandLogging))

/** Milliseconds without a response after which a wait ends. */
const LOST_MILLIS = 10_000

/** Milliseconds between two checks of a wait. */
const CHECK_MILLIS = 250

/** Says when the service is out of reach, repeating `lost`, and when it is back. */
const watchBreaks = Effect.fnUntraced(function* <E = never, R = never>(
  say: (text: string) => Effect.Effect<void>,
  lost: (now: Break) => Effect.Effect<void, E, R> = () => Effect.void
) {
  const { broken } = yield* Reachability
  while (true) {
    yield* Effect.sleep(CHECK_MILLIS)
    const now = broken()
    if (now === undefined) continue
    if (now.sayBack === undefined) {
      now.sayBack = say("connected again")
      yield* say("connection lost, reconnecting")
    }
    yield* lost(now)
  }
})

/** Fails once the service has been out of reach for {@link LOST_MILLIS}. */
const failIfLost = Effect.fnUntraced(function* ({ failure, since }: Break) {
  const { url } = yield* CommandTarget
  if ((yield* elapsedMillis) - since < LOST_MILLIS) return
  return yield* CommandError.unreachable(
    `${url} cannot be reached any more (${whyUnreachable(failure)}): the wait has ended, its result is unknown`
  )
})

/** Runs a wait that repeats its own requests. @error CommandError no response for 10 s (unreachable) */
export const whileReachable = <A, E, R>(wait: Effect.Effect<A, E, R>) =>
  Effect.raceFirst(wait, watchBreaks(note, failIfLost))

/** Runs a command that follows something, which resumes by itself; says when the service is out of reach. */
export const following = <A, E, R>(follow: Effect.Effect<A, E, R>, say = note) =>
  Effect.raceFirst(follow, watchBreaks(say))

/** The time between two attempts of a wait. */
export const RETRY_PAUSE = "1 second"

const ATTEMPTS = 60

/** Repeats a read of a wait while the service cannot be reached, or refuses for now. */
export const reconnecting = <A, R>(read: Effect.Effect<A, CommandError, R>) =>
  Effect.retry(read, {
    schedule: Schedule.spaced(RETRY_PAUSE),
    times: ATTEMPTS,
    while: ({ status }) => status === "refused" || status === "unreachable"
  })

interface ApiFailure {
  readonly code: string
  readonly detail: string
  readonly hint: string
}

const isOfApi = (failure: object): failure is ApiFailure =>
  "code" in failure && "detail" in failure && "hint" in failure

const isOfTransport = (failure: object): failure is HttpClientError.HttpClientError =>
  "_tag" in failure && failure._tag === "HttpClientError" && "reason" in failure

const isOfSocket = (failure: object): failure is Socket.SocketError =>
  "_tag" in failure && failure._tag === "SocketError"

const sentence = (text: string): string => (/[.?!]$/.test(text) ? text : `${text}.`)

/** Returns the failure of a request with an invalid field: the hint for callers of the API has no meaning here. */
const ofInvalid = (detail: string, hint: string): CommandError => {
  // An object that does not exist is no wrong usage, whichever object needs it.
  const status = /^software is not defined: /.test(detail) ? "notFound" : "usage"
  const text = detail.replace(/(^|; )(?:body|query|path) field /g, "$1")
  return new CommandError({
    status,
    message: hint.includes("`detail` names") ? sentence(text) : `${sentence(text)} ${hint}`
  })
}

const ofApi = ({ code, detail, hint }: ApiFailure, target: CommandTarget["Service"]): CommandError => {
  const status = statusOf[code] ?? "failed"
  if (status === "usage") return ofInvalid(detail, hint)
  if (status !== "notAllowed")
    return new CommandError({ status, message: `${sentence(detail)} ${hint}`, hint })
  const { keyFrom, url } = target
  const refused = `${url} refuses the key of ${keyFrom}: ${detail}`
  const set = keyFrom === "MUSTER_API_KEY" ? "set it to" : "set MUSTER_API_KEY to"
  if (code === "401" || /lacks the scope \w+$/.test(detail)) {
    return new CommandError({ status, message: `${refused}; ${set} a key of scope AppAdmin; ${MAKE_A_KEY}` })
  }
  const right = /lacks: (\w+)$/.exec(detail)?.[1]
  // Another key would not help: the limits of this one, or its quota, are the reason.
  if (right === undefined) {
    const reason = detail.replace(/lacks: (\w+): it is/, "lacks the right to $1 here, as it is")
    return new CommandError({ status, message: `${reason}. ${hint} The key is that of ${keyFrom}.` })
  }
  return new CommandError({
    status,
    message: `${refused}; ${set} a key with this right; \`muster keys create --name <name> --scope Operator --allow ${right}\` beside the service makes one`
  })
}

/** The statuses of a proxy whose service cannot be reached. */
const OF_PROXY = [502, 503, 504]

/** Returns why a request got no response of the service, in a few words. */
const whyUnreachable = (failure: HttpClientError.HttpClientError): string => {
  const { code, kind, message } = whyNoAnswer(failure)
  const { response } = failure
  if (response !== undefined && OF_PROXY.includes(response.status))
    return `a proxy responds with ${response.status}`
  return kind === "tls" ? `TLS fails: ${code}: ${message}` : code || message || "no response"
}

/** Returns the next step if a socket is out of reach. */
const hintOfSocket = (code: string): string =>
  code === "EACCES"
    ? "only the owner of the data folder and root may use it; set MUSTER_URL and MUSTER_API_KEY"
    : "no service runs on this data folder. Start it with `muster serve`, set MUSTER_DATA_DIR to the data folder of the service, or set MUSTER_URL and MUSTER_API_KEY"

const ofTransport = (failure: HttpClientError.HttpClientError, url: string): CommandError | undefined => {
  const { response } = failure
  const { code, kind } = whyNoAnswer(failure)
  // A code of the system: the connection broke while the response arrived.
  if (response !== undefined && !OF_PROXY.includes(response.status))
    return code === "" ? undefined : CommandError.unreachable(`${url} broke off its response (${code})`)
  const hint =
    socketPathOf(url) !== undefined
      ? hintOfSocket(code)
      : kind === "tls"
        ? "check its scheme, and NODE_EXTRA_CA_CERTS where the authority is private"
        : "set MUSTER_URL to where the service is"
  return CommandError.unreachable(`${url} cannot be reached (${whyUnreachable(failure)}): ${hint}`)
}

/** Returns the failure of a call in words for the user of the command. */
const inWords = (failure: object, target: CommandTarget["Service"]): CommandError => {
  if (failure instanceof CommandError) return failure
  if (isOfApi(failure)) return ofApi(failure, target)
  if (failure instanceof WaitTimedOut) return CommandError.failed(failure.message)
  if (isOfSocket(failure)) {
    return CommandError.unreachable(
      `no WebSocket to ${target.url} can be opened (${failure.message}): a proxy before it must pass them on`
    )
  }
  return (
    (isOfTransport(failure) ? ofTransport(failure, target.url) : undefined) ??
    CommandError.failed(
      `the response of ${target.url} is invalid: check MUSTER_URL, and run the same version of muster on both sides`
    )
  )
}

/** Calls the service of the settings; failures say what to do next. */
export const ask = <A, E extends object, R>(
  use: (muster: MusterClient["Service"]) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const muster = yield* MusterClient
    const target = yield* CommandTarget
    return yield* Effect.mapError(use(muster), (failure) => inWords(failure, target))
  })

/** Reads for a command that follows something: the read is repeated while the service is out of reach, or refuses for now. */
export const askAgain: typeof ask = (use) =>
  ask((muster) =>
    Effect.retry(use(muster), {
      schedule: Schedule.spaced(RETRY_PAUSE),
      while: (failure) => isTransient(failure)
    })
  )

/** Reads a stream of the service of the settings; failures say what to do next. */
export const askStream = <A, E extends object, R>(
  use: (muster: MusterClient["Service"]) => Stream.Stream<A, E, R>
) =>
  Stream.unwrap(
    Effect.gen(function* () {
      const muster = yield* MusterClient
      const target = yield* CommandTarget
      return Stream.mapError(use(muster), (failure) => inWords(failure, target))
    })
  )
