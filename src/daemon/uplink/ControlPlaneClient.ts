import { createHash, timingSafeEqual } from "node:crypto"
import { ByteSize, Context, Duration, Effect, Layer, type Redacted, Stream } from "effect"
import { HttpClient, HttpClientError, HttpClientRequest, HttpIncomingMessage } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { undecodableFails } from "../../contract/api/transport.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import type { Report, ReportsAnswer } from "../../contract/domain/NodeMessages.ts"
import { baseUrlOf } from "../../contract/domain/transport.ts"
import {
  ControlPlane,
  type ControlPlaneError,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../contract/nodeApi/ControlPlane.ts"
import { NodeApi } from "../../contract/nodeApi/NodeApi.ts"
import { type Diagnosis, diagnose, type Failure, type LinkLog, makeLinkLog } from "./diagnosis.ts"

const digest = (text: string) => createHash("sha256").update(text).digest()

/** The token that the control plane calls this daemon with, from the last registration. */
export class NodeToken extends Context.Service<
  NodeToken,
  {
    set(token: string): void
    /** Refuses every token until the next registration. */
    clear(): void
    /** Compares in constant time; returns false before the first registration. */
    accepts(text: string): boolean
  }
>()("muster/daemon/NodeToken") {
  static readonly layer = Layer.sync(NodeToken, () => {
    let current: Buffer | undefined
    return NodeToken.of({
      set: (token) => {
        current = digest(token)
      },
      clear: () => {
        current = undefined
      },
      accepts: (text) => current !== undefined && timingSafeEqual(digest(text), current)
    })
  })
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

/** The control plane on another host. A registration sets the {@link NodeToken}, and the caller retries. */
export const ControlPlaneClient = (options: ControlPlaneClientOptions) =>
  Layer.effect(
    ControlPlane,
    Effect.gen(function* () {
      const token = yield* NodeToken
      const { node } = yield* HttpApiClient.make(NodeApi, {
        baseUrl: baseUrlOf(options.url),
        transformClient: (client) =>
          requireRequestId(HttpClient.mapRequest(client, HttpClientRequest.bearerToken(options.key)))
      })
      const log = makeLinkLog(options.url)
      // A failed deregistration has its own log line, because no servers are left to mention.
      const silentLog = { connected: Effect.void, failed: () => Effect.void }
      const timeout = Duration.fromInputUnsafe(options.timeout ?? "10 seconds")
      const params = { node: options.node_id }
      const required = new RegistrationRequired({ node_id: options.node_id })
      let registered: string | undefined

      const call = <A>(
        effect: Effect.Effect<A, Failure>,
        within = timeout,
        { failed, connected }: Pick<LinkLog, "failed" | "connected"> = log
      ) =>
        undecodableFails(effect).pipe(
          Effect.provideService(HttpIncomingMessage.MaxBodySize, LARGEST_ANSWER),
          Effect.timeoutOrElse({ duration: within, orElse: () => Effect.fail("timed-out" as const) }),
          Effect.tap(() => connected),
          Effect.catch((failure): Effect.Effect<never, ControlPlaneError> => {
            if (failure === "timed-out")
              return Effect.andThen(failed(timedOut), Effect.fail(unavailable(timedOut)))
            if (failure._tag === "NotFound") return Effect.fail(required)
            // The connection works: another registration was accepted shortly before.
            if (failure._tag === "TooManyRequests") {
              return Effect.fail(new ControlPlaneUnavailable({ detail: failure.detail, busy: true }))
            }
            const diagnosis = diagnose(failure, registered !== undefined)
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
      const outcomesOf = ({ failures }: ReportsAnswer, count: number): Outcomes => {
        const byIndex = new Map(failures.map((failure) => [failure.index, failure]))
        return Array.from({ length: count }, (_, index) => {
          const failure = byIndex.get(index)
          if (failure === undefined) return undefined
          return failure.status === 404 ? required : unavailable({ state: "busy", detail: failure.detail })
        })
      }
      /** Unset if the control plane fails at the message: one of several reports may be the reason. */
      const sendReports = (boot_id: string, reports: ReadonlyArray<Report>) =>
        node.events({ params, payload: { boot_id, reports } }).pipe(
          Effect.map((answer) => outcomesOf(answer, reports.length)),
          Effect.catchIf(
            ({ _tag }) => _tag === "InternalError" && reports.length > 1,
            () => Effect.succeed(undefined)
          ),
          call
        )
      /** Sends each report as a message. The first failure of a server is the failure of its later reports. */
      const sendSingly = (boot_id: string, reports: ReadonlyArray<Report>): Effect.Effect<Outcomes> => {
        const failed = new Map<ServerId, ControlPlaneError>()
        return Effect.forEach(reports, (report) =>
          Effect.suspend(() => {
            const earlier = failed.get(report.server_id)
            if (earlier !== undefined) return Effect.succeed(earlier)
            return Effect.match(sendReports(boot_id, [report]), {
              onSuccess: (outcomes) => outcomes?.[0],
              onFailure: (error) => error
            })
          }).pipe(
            Effect.tap((failure) =>
              Effect.sync(() => failure !== undefined && failed.set(report.server_id, failure))
            )
          )
        )
      }

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
        // One report of several may be the reason why the control plane refuses all of them.
        reports: (_, boot_id, reports) =>
          sendReports(boot_id, reports).pipe(
            Effect.catchIf(
              (error) =>
                error._tag === "ControlPlaneUnavailable" && error.refuses === "message" && reports.length > 1,
              () => Effect.succeed(undefined)
            ),
            Effect.flatMap((outcomes) =>
              outcomes === undefined ? sendSingly(boot_id, reports) : Effect.succeed(outcomes)
            )
          ),
        // Its failures do not concern the link.
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
            Effect.timeoutOrElse({ duration: timeout, orElse: () => Effect.fail(unavailable(timedOut)) })
          ),
        // Its failures do not concern the link: the source node may be away.
        files: (_, server_id) =>
          node.files({ params: { ...params, server: server_id } }).pipe(
            Effect.mapError((failure) =>
              unavailable(
                failure._tag === "NotFound" ? { state: "refused", detail: failure.detail } : diagnose(failure)
              )
            ),
            Effect.timeoutOrElse({
              duration: Duration.times(timeout, 3),
              orElse: () => Effect.fail(unavailable(timedOut))
            }),
            Effect.map(Stream.mapError(() => unavailable(transferInterrupted)))
          )
      })
    })
  )
