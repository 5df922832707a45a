import { createHash, timingSafeEqual } from "node:crypto"
import { ByteSize, Context, Duration, Effect, Layer, type Redacted, Stream } from "effect"
import { HttpClient, HttpClientError, HttpClientRequest, HttpIncomingMessage } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { undecodableFails } from "../../contract/api/noAnswer.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import type { Report, ReportsAnswer } from "../../contract/domain/NodeMessages.ts"
import { baseUrlOf } from "../../contract/domain/transport.ts"
import {
  ControlPlane,
  ControlPlaneApi,
  type ControlPlaneError,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../contract/nodeApi/ControlPlaneApi.ts"
import { type Diagnosis, diagnose, type Failure, type LinkLog, makeLinkLog } from "./diagnosis.ts"

const digest = (text: string) => createHash("sha256").update(text).digest()

const makeNodeToken = () => {
  let current: Buffer | undefined
  return {
    set: (token: string) => {
      current = digest(token)
    },
    /** Refuses every token until the next registration. */
    clear: () => {
      current = undefined
    },
    /** Compares in constant time; returns false before the first registration. */
    accepts: (text: string) => current !== undefined && timingSafeEqual(digest(text), current)
  }
}

/** The token that the control plane calls this daemon with, from the last registration. */
export class NodeToken extends Context.Service<NodeToken, ReturnType<typeof makeNodeToken>>()(
  "muster/daemon/NodeToken"
) {
  static readonly layer = Layer.sync(NodeToken, makeNodeToken)
}

export interface ControlPlaneClientOptions {
  readonly node_id: NodeId
  /** Base URL of the control plane, or `unix:` and the path of its socket: the client of the context connects to it. */
  readonly url: string
  readonly key: Redacted.Redacted<string>
  /** Deregisters when this layer is released: the servers were stopped, and the node may be gone permanently. */
  readonly deregister: boolean
  /** Timeout of each call. Default 10 s; a registration has three times as much. */
  readonly timeout?: Duration.Input
}

/** Bound of each response except files: a registration names up to 50,000 servers. */
const LARGEST_ANSWER = ByteSize.mebibytes(16)

const DEREGISTRATION_TIMEOUT = Duration.seconds(2)

const timedOut: Diagnosis = { state: "away", detail: "no response in time" }
const transferInterrupted: Diagnosis = { state: "away", detail: "the file transfer was interrupted" }
const notControlPlane: Diagnosis = {
  state: "stranger",
  detail: "the address is not that of a control plane: check MUSTER_CONTROL_URL"
}

const unavailable = ({ detail }: Diagnosis, refuses?: "node" | "message") =>
  new ControlPlaneUnavailable({ detail, ...(refuses === undefined ? {} : { refuses }) })

const within = (duration: Duration.Duration) =>
  Effect.timeoutOrElse({ duration, orElse: () => Effect.fail(unavailable(timedOut)) })

/** Whether the control plane refuses the key. No other call with this key can succeed. */
const refusesKey = ({ _tag }: Failure) => _tag === "Unauthorized" || _tag === "Forbidden"

/** Whether the control plane refuses the message. A retry does not help. */
const refusesMessage = ({ _tag }: Failure) =>
  _tag === "InvalidRequest" || _tag === "BodyTooLarge" || _tag === "Conflict"

const logNotDeregistered = (url: string, error: ControlPlaneError) =>
  error._tag === "RegistrationRequired"
    ? Effect.logInfo(`${url} no longer has this registration of the node: no deregistration is needed`)
    : Effect.logWarning(
        `deregistration from ${url} failed (${error.detail}): the node counts as lost after the MUSTER_NODE_HEARTBEAT_TIMEOUT of the service; queued reports are sent at the next start`
      )

/** A failed deregistration has its own log line, because no servers are left to mention. */
const silentLog = { connected: Effect.void, failed: () => Effect.void }

/** Fails for responses of other servers. Ours name the request (spec 1), so no other 200 acknowledges. */
const requireRequestId = HttpClient.transformResponse(
  Effect.flatMap((response) =>
    response.status >= 300 || response.headers["x-request-id"] !== undefined
      ? Effect.succeed(response)
      : Effect.andThen(
          Effect.ignore(response.text),
          Effect.fail(
            new HttpClientError.HttpClientError({
              reason: new HttpClientError.StatusCodeError({ request: response.request, response })
            })
          )
        )
  )
)

interface Calls {
  readonly required: RegistrationRequired
  readonly timeout: Duration.Duration
  readonly log: LinkLog
  readonly token: NodeToken["Service"]
  readonly isRegistered: () => boolean
}

/** Returns the function that runs a call and logs what its response says of the link. */
const makeCall =
  ({ isRegistered, log, required, timeout, token }: Calls) =>
  <A>(
    effect: Effect.Effect<A, Failure>,
    duration = timeout,
    { connected, failed }: Pick<LinkLog, "failed" | "connected"> = log
  ) =>
    undecodableFails(effect).pipe(
      Effect.provideService(HttpIncomingMessage.MaxBodySize, LARGEST_ANSWER),
      Effect.timeoutOrElse({ duration, orElse: () => Effect.fail("timed-out" as const) }),
      Effect.tap(() => connected),
      Effect.catch((failure): Effect.Effect<never, ControlPlaneError> => {
        if (failure === "timed-out")
          return Effect.andThen(failed(timedOut), Effect.fail(unavailable(timedOut)))
        if (failure._tag === "NotFound") return Effect.fail(required)
        // The connection works: another registration was accepted shortly before.
        if (failure._tag === "TooManyRequests") {
          return Effect.fail(new ControlPlaneUnavailable({ detail: failure.detail, busy: true }))
        }
        const diagnosis = diagnose(failure, isRegistered())
        if (refusesKey(failure) && diagnosis.state !== "stranger") {
          // The holder of the token of an invalid key must not call this daemon.
          token.clear()
          return Effect.andThen(failed(diagnosis), Effect.fail(unavailable(diagnosis, "node")))
        }
        return refusesMessage(failure)
          ? Effect.fail(unavailable(diagnosis, "message"))
          : Effect.andThen(failed(diagnosis), Effect.fail(unavailable(diagnosis)))
      })
    )

type Outcomes = ReadonlyArray<ControlPlaneError | undefined>

/** Sends each report as a message. The first failure of a server is the failure of its later reports. */
const singly = (
  reports: ReadonlyArray<Report>,
  send: (reports: ReadonlyArray<Report>) => Effect.Effect<Outcomes, ControlPlaneError>
): Effect.Effect<Outcomes> => {
  const failed = new Map<ServerId, ControlPlaneError>()
  return Effect.forEach(
    reports,
    Effect.fnUntraced(function* (report) {
      const earlier = failed.get(report.server_id)
      if (earlier !== undefined) return earlier
      const failure = yield* Effect.match(send([report]), {
        onSuccess: ([outcome]) => outcome,
        onFailure: (error) => error
      })
      if (failure !== undefined) failed.set(report.server_id, failure)
      return failure
    })
  )
}

/** The control plane on another host. A registration sets the {@link NodeToken}, and the caller retries. */
export const ControlPlaneClient = (options: ControlPlaneClientOptions) =>
  Layer.effect(
    ControlPlane,
    Effect.gen(function* () {
      const token = yield* NodeToken
      const { node } = yield* HttpApiClient.make(ControlPlaneApi, {
        baseUrl: baseUrlOf(options.url),
        transformClient: (client) =>
          requireRequestId(HttpClient.mapRequest(client, HttpClientRequest.bearerToken(options.key)))
      })
      const log = makeLinkLog(options.url)
      const timeout = Duration.fromInputUnsafe(options.timeout ?? "10 seconds")
      const params = { node: options.node_id }
      const required = new RegistrationRequired({ node_id: options.node_id })
      let registered: string | undefined
      const call = makeCall({ isRegistered: () => registered !== undefined, log, required, timeout, token })

      const outcomesOf = ({ failures }: ReportsAnswer, count: number): Outcomes => {
        const byIndex = new Map(failures.map((failure) => [failure.index, failure]))
        return Array.from({ length: count }, (_, index) => {
          const failure = byIndex.get(index)
          if (failure === undefined) return undefined
          return failure.status === 404 ? required : unavailable({ state: "busy", detail: failure.detail })
        })
      }
      const sendReports = (
        boot_id: string,
        reports: ReadonlyArray<Report>
      ): Effect.Effect<Outcomes, ControlPlaneError> =>
        node.reports({ params, payload: { boot_id, reports } }).pipe(
          Effect.map((answer) => Effect.succeed(outcomesOf(answer, reports.length))),
          // One report of several may be the reason why the control plane fails, or refuses all of them.
          Effect.catchIf(
            (failure) => reports.length > 1 && (failure._tag === "InternalError" || refusesMessage(failure)),
            () => Effect.succeed(singly(reports, (single) => sendReports(boot_id, single)))
          ),
          call,
          Effect.flatten
        )

      if (options.deregister) {
        yield* Effect.addFinalizer(() =>
          registered === undefined
            ? Effect.void
            : call(
                node.disconnect({ params, query: { boot_id: registered } }),
                DEREGISTRATION_TIMEOUT,
                silentLog
              ).pipe(Effect.catch((error) => logNotDeregistered(options.url, error)))
        )
      }

      return ControlPlane.of({
        register: Effect.fn("ControlPlaneClient.register")(function* (registration) {
          const answer = yield* call(
            node.register({ params, payload: registration }),
            Duration.times(timeout, 3)
          ).pipe(
            Effect.catchTag("RegistrationRequired", () =>
              Effect.andThen(log.failed(notControlPlane), Effect.fail(unavailable(notControlPlane)))
            ),
            Effect.tapError(({ detail, refuses }) =>
              refuses === "message" ? log.failed({ state: "refused", detail }) : Effect.void
            )
          )
          token.set(answer.token)
          registered = registration.boot_id
          yield* Effect.logInfo(`registered with ${options.url}`).pipe(
            Effect.annotateLogs({ node_id: options.node_id })
          )
          return answer
        }),
        heartbeat: (_, heartbeat) =>
          Effect.flatMap(call(node.heartbeat({ params, payload: heartbeat })), (answer) =>
            log.unreachable(answer?.unreachable)
          ),
        disconnect: (_, boot_id) => call(node.disconnect({ params, query: { boot_id } })),
        reports: (_, boot_id, reports) => sendReports(boot_id, reports),
        // The failures of these two do not concern the link: the source node of files may be away.
        replacePorts: (_, boot_id, server_id, taken) =>
          undecodableFails(
            node.ports({ params: { ...params, server: server_id }, payload: { boot_id, taken } })
          ).pipe(
            Effect.provideService(HttpIncomingMessage.MaxBodySize, LARGEST_ANSWER),
            Effect.map(({ allocations }) => allocations),
            Effect.mapError((failure) =>
              failure._tag === "NotFound" || failure._tag === "Conflict"
                ? unavailable({ state: "refused", detail: failure.detail }, "message")
                : unavailable(diagnose(failure, true))
            ),
            within(timeout)
          ),
        files: (_, server_id) =>
          node.files({ params: { ...params, server: server_id } }).pipe(
            Effect.mapError((failure) =>
              unavailable(
                failure._tag === "NotFound" ? { state: "refused", detail: failure.detail } : diagnose(failure)
              )
            ),
            within(Duration.times(timeout, 3)),
            Effect.map(Stream.mapError(() => unavailable(transferInterrupted)))
          )
      })
    })
  )
