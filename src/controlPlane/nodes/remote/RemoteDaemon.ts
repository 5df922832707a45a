import { ByteSize, Context, Duration, Effect, type Scope, Semaphore, Stream } from "effect"
import { HttpClient, HttpClientRequest, HttpIncomingMessage } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import type { CircuitBreaker } from "effect/persistence"
import { undecodableFails } from "../../../contract/api/noAnswer.ts"
import { RequestId } from "../../../contract/domain/ApiError.ts"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { timeText } from "../../../contract/domain/NodeText.ts"
import type { ConsolePage, Pagination } from "../../../contract/domain/Pagination.ts"
import {
  type Daemon,
  type DaemonError,
  type LinesRequest,
  NodeUnreachable
} from "../../../contract/nodeApi/Daemon.ts"
import { DaemonApi, SEQUENCE_HEADER } from "../../../contract/nodeApi/DaemonApi.ts"
import { type ClientTls, tlsNow } from "../../../shared/net/connectTimeoutClient.ts"
import { makeCreations } from "./creations.ts"
import { type CallFailure, creationOutcome, remoteCall, toDaemonError } from "./remoteCall.ts"
import { makeRemoteBackups, makeRemoteFiles } from "./remoteFiles.ts"
import { openRemoteSession } from "./remoteSession.ts"
import { type NodeNetworks, openConsole, type SocketOptions } from "./remoteSocket.ts"

export interface RemoteTarget {
  readonly url: string
  readonly token: string
}

export interface RemoteDaemonOptions extends ClientTls {
  readonly node_id: NodeId
  /** Called before each attempt. Returns nothing if the node is not connected. */
  readonly target: () => RemoteTarget | undefined
  /** Waits for a node that may connect soon, before a call to a disconnected one. */
  readonly expected?: Effect.Effect<void>
  /** Brings {@link target} up to date for a daemon that refuses the token. */
  readonly refresh?: Effect.Effect<void>
  readonly onAnswered?: Effect.Effect<void>
  /** Runs after a call without an answer, or if the daemon refuses the token of its last registration. */
  readonly onUnreachable?: Effect.Effect<void>
  readonly client: Effect.Effect<DaemonCalls>
  /** The networks of the node for its consoles, which have connections of their own. */
  readonly networks?: NodeNetworks
  readonly breaker: CircuitBreaker.CircuitBreaker
  /** Runs a message of several callers. */
  readonly fork: (message: Effect.Effect<void>) => void
  /** Total time of each call. Default 10 s (spec 9.4). */
  readonly deadline?: Duration.Input
}

/** Bound of an ordinary answer, in bytes: a host, the state or statistics of a server. */
const LARGEST_ANSWER = 64 * 1024
const LARGEST_STATS = 1024
/** Bound of a script, and of a page of lines without its lines. */
const LARGEST_TEXT = 2 * 1024 * 1024
/** Bound of one line of a log, in bytes: a line of a daemon has 8 KiB, and in JSON up to twice as much. */
const LARGEST_LINE = 16 * 1024
const LINES = 1000
/** Bound of all scripts and pages that are read from one daemon at a time, in bytes. */
const TEXT_AT_ONCE = LINES * LARGEST_LINE

/** The target of the calls that the current fiber makes. */
const CurrentTarget = Context.Reference<RemoteTarget>("muster/nodes/CurrentTarget", {
  defaultValue: () => ({ url: "", token: "" })
})

const daemonCalls = Effect.map(
  HttpApiClient.make(DaemonApi, {
    transformClient: HttpClient.mapRequestEffect(
      Effect.fnUntraced(function* (request) {
        const { token, url } = yield* CurrentTarget
        const id = yield* RequestId
        const sent = request.pipe(HttpClientRequest.prependUrl(url), HttpClientRequest.bearerToken(token))
        return id === undefined ? sent : HttpClientRequest.setHeader(sent, "x-request-id", id)
      })
    )
  }),
  ({ daemon, nodeBackups, nodeFiles, nodeUploads }) => ({ ...daemon, nodeBackups, nodeFiles, nodeUploads })
)
export type DaemonCalls = Effect.Success<typeof daemonCalls>

/** The client of all daemons, whose calls go to {@link CurrentTarget}. The first call makes it: many services have none. */
export const makeDaemonCalls = Effect.flatMap(HttpClient.HttpClient, (client) =>
  Effect.cached(Effect.provideService(daemonCalls, HttpClient.HttpClient, client))
)

type Use<A> = (client: DaemonCalls) => Effect.Effect<A, CallFailure>

const pageOf =
  ({ per_page }: LinesRequest) =>
  (answer: { readonly meta: { readonly pagination: Pagination }; readonly data: ReadonlyArray<string> }) => ({
    items: answer.data.slice(0, per_page),
    total: Math.max(0, answer.meta.pagination.total)
  })

const lines = (request: LinesRequest) => ({
  page: String(request.page),
  per_page: String(request.per_page)
})

const sequenceOf = (header: string | undefined): number | undefined =>
  header !== undefined && /^\d{1,15}$/.test(header) ? Number(header) : undefined

/** The calls to one daemon, with its current target or another one whose token it knows. */
const makeCalling = (options: RemoteDaemonOptions) => {
  const { breaker, client, expected = Effect.void, node_id, refresh = Effect.void, target } = options
  const standard = Duration.fromInputUnsafe(options.deadline ?? "10 seconds")
  const unreachable = new NodeUnreachable({ node_id })
  let accepted: RemoteTarget | undefined

  /** Returns another target after a refused token: a later registration or, during one, the previous target. */
  const otherThan = (now: RemoteTarget, newestOnly = false): RemoteTarget | undefined => {
    const later = target()
    if (later === undefined || later.token !== now.token) return later
    if (newestOnly) return undefined
    return accepted?.url === now.url && accepted.token !== now.token ? accepted : undefined
  }

  const awaited = Effect.suspend(() => (target() === undefined ? expected : Effect.void))

  const send = <A>(to: RemoteTarget, use: Use<A>, largest: number) =>
    undecodableFails(Effect.flatMap(client, use)).pipe(
      Effect.provideService(CurrentTarget, to),
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(largest)),
      Effect.mapError((failure) => toDaemonError(node_id, failure)),
      Effect.tap(() =>
        Effect.sync(() => {
          accepted = to
        })
      )
    )

  const call = <A>(
    repeatable: boolean,
    use: Use<A>,
    { deadline = standard, largest = LARGEST_ANSWER, newestOnly = false } = {}
  ): Effect.Effect<A, DaemonError> => {
    const calling = Effect.suspend(() => {
      const first = target()
      if (first === undefined) return Effect.fail(unreachable)
      // The node may have registered with another replica a moment ago.
      let refreshed = false
      const refreshOnce = Effect.suspend(() => {
        const again = refreshed ? Effect.void : refresh
        refreshed = true
        return again
      })
      const attempt = Effect.suspend(() => {
        const now = target()
        if (now === undefined) return Effect.fail(unreachable)
        return send(now, use, largest).pipe(
          // A daemon that refuses a token has done nothing.
          Effect.catchTag("TokenUnknown", (unknown) =>
            Effect.flatMap(refreshOnce, () => {
              const other = otherThan(now, newestOnly)
              return other === undefined ? Effect.fail(unknown) : send(other, use, largest)
            })
          )
        )
      })
      // A registration starts over: failures of the previous target say nothing about the new one.
      return remoteCall(attempt, {
        node_id,
        key: `${node_id} ${first.token}`,
        repeatable,
        deadline,
        breaker,
        onAnswered: options.onAnswered ?? Effect.void,
        onUnreachable: options.onUnreachable ?? Effect.void
      })
    })
    return Effect.andThen(awaited, calling)
  }

  /** Opens a connection of its own, with another target after a refused token. */
  const connected = <A, E>(
    open: (options: SocketOptions) => Effect.Effect<A, E | DaemonError, Scope.Scope>
  ): Effect.Effect<A, E | DaemonError, Scope.Scope> =>
    Effect.gen(function* () {
      yield* awaited
      const now = target()
      if (now === undefined) return yield* Effect.fail<E | DaemonError>(unreachable)
      const { networks } = options
      const openAt = ({ token, url }: RemoteTarget) =>
        open({ node_id, url, token, tls: tlsNow(options), ...(networks === undefined ? {} : { networks }) })
      return yield* openAt(now).pipe(
        Effect.catchIf(
          (error) => error instanceof NodeUnreachable,
          (error) =>
            Effect.flatMap(refresh, () => {
              const other = otherThan(now)
              return other === undefined ? Effect.fail(error) : openAt(other)
            })
        )
      )
    })

  return { call, connected, unreachable }
}

export const makeRemoteDaemon = (options: RemoteDaemonOptions): Daemon => {
  const { node_id } = options
  const { call, connected, unreachable } = makeCalling(options)
  const safe = <A>(use: Use<A>) => call(true, use)
  const once = <A>(use: Use<A>) => call(false, use)

  const reading = Semaphore.makeUnsafe(TEXT_AT_ONCE)
  /** Reads large responses one after another, because a daemon may send without end. */
  const large = <A>(largest: number, use: Use<A>) =>
    call(true, (client) => reading.withPermits(largest)(use(client)), { largest })
  const page = (request: LinesRequest, use: Use<ConsolePage>) =>
    large(Math.min(LARGEST_TEXT + request.per_page * LARGEST_LINE, TEXT_AT_ONCE), use)

  return {
    // Tests whether the daemon knows its newest token; if not, the daemon must register again.
    system: call(true, (client) => client.system({}), { newestOnly: true }),
    register: safe((client) => client.register({})),
    create: makeCreations({
      single: (spec) => safe((client) => client.create({ payload: spec })),
      together: (payload) =>
        Effect.map(
          call(true, (client) => client.createMany({ payload }), {
            largest: payload.servers.length * LARGEST_ANSWER
          }),
          ({ outcomes }) => payload.servers.map(({ id }, at) => creationOutcome(node_id, id, outcomes[at]))
        ),
      fork: options.fork
    }),
    find: (id) => safe((client) => client.get({ params: { id } })),
    remove: (id, options) =>
      safe((client) =>
        client.remove({
          params: { id },
          query: {
            ...(options?.moved === true ? { moved: true } : {}),
            ...(options?.kept === true ? { kept: true } : {})
          }
        })
      ),
    power: (id, action, wait_seconds, by) =>
      once((client) =>
        Effect.map(
          client.power({
            params: { id },
            payload: { action, wait_seconds, ...(by === undefined ? {} : { by }) },
            responseMode: "decoded-and-response"
          }),
          ([, { headers }]) => sequenceOf(headers[SEQUENCE_HEADER])
        )
      ),
    commands: (id, commands, by) =>
      once((client) =>
        client.commands({ params: { id }, payload: { commands, ...(by === undefined ? {} : { by }) } })
      ),
    reset: (id) =>
      once((client) =>
        Effect.map(
          client.reset({ params: { id }, responseMode: "decoded-and-response" }),
          ([, { headers }]) => sequenceOf(headers[SEQUENCE_HEADER])
        )
      ),
    reinstall: (id) => once((client) => client.reinstall({ params: { id } })),
    hold: (id, held) => safe((client) => client.hold({ params: { id }, payload: { held } })),
    exportFiles: (id) =>
      Effect.map(
        safe((client) => client.files({ params: { id } })),
        Stream.mapError((): DaemonError => unreachable)
      ),
    status: (id) => safe((client) => Effect.map(client.status({ params: { id } }), (it) => it.status)),
    stats: (id, { update_disk_usage }) =>
      safe((client) =>
        client.stats({
          params: { id },
          query: { update_disk_usage }
        })
      ),
    statsOfMany: (ids) =>
      large(LARGEST_ANSWER + ids.length * LARGEST_STATS, (client) =>
        client.statsOfMany({ payload: { ids } })
      ),
    logs: (id, request) =>
      page(request, (client) =>
        Effect.map(
          client.logs({
            params: { id },
            query: { ...lines(request), ...(request.times === true && { times: true }) }
          }),
          (answer) => ({
            ...pageOf(request)(answer),
            ...(answer.times && { times: answer.times.map((time) => timeText(time ?? "") ?? null) })
          })
        )
      ),
    install: (id) => large(LARGEST_TEXT, (client) => client.install({ params: { id } })),
    installLogs: (id, request) =>
      page(request, (client) =>
        Effect.map(client.installLogs({ params: { id }, query: lines(request) }), pageOf(request))
      ),
    console: (id) => connected((to) => openConsole(to, id)),
    files: {
      ...makeRemoteFiles({ call, unreachable }),
      session: (id) => connected((to) => openRemoteSession(to, id))
    },
    backups: makeRemoteBackups({ call, unreachable })
  }
}
