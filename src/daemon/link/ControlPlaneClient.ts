import { Duration, Effect, Layer, type Redacted, type Schema } from "effect"
import { HttpClient, type HttpClientError, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { ControlPlane, ControlPlaneUnavailable, RegistrationRequired } from "../../api/ControlPlane.ts"
import { NodeApi } from "../../api/NodeApi.ts"
import type {
  BodyTooLarge,
  Conflict,
  Forbidden,
  InternalError,
  InvalidRequest,
  NotFound,
  TimedOut,
  TooManyRequests,
  Unauthorized,
  Unavailable
} from "../../domain/errors.ts"
import type { Report } from "../../domain/NodeMessages.ts"
import { NodeToken } from "./NodeToken.ts"

export interface ControlPlaneClientOptions {
  readonly node_id: string
  /** Where the control plane is. */
  readonly url: string
  /** A key with the scope `Node`. */
  readonly key: Redacted.Redacted<string>
  /** Says good-bye when this layer is released: the servers were stopped, and it may be for good. */
  readonly goodbye: boolean
  /** Of each call. Default 10 s; a registration has three times that. */
  readonly deadline?: Duration.Input
}

type Failure =
  | BodyTooLarge
  | Conflict
  | Forbidden
  | InternalError
  | InvalidRequest
  | NotFound
  | TimedOut
  | TooManyRequests
  | Unauthorized
  | Unavailable
  | HttpClientError.HttpClientError
  | Schema.SchemaError

/** How long a good-bye may take. */
const GOODBYE = Duration.seconds(2)

const unavailable = (failure: Exclude<Failure, NotFound>): string => {
  switch (failure._tag) {
    case "HttpClientError":
      return failure.response === undefined
        ? "the control plane cannot be reached"
        : `the control plane answered ${failure.response.status}`
    case "SchemaError":
      return "the control plane's answer is not understood: run the same version of Muster on both sides"
    default:
      return `${failure.detail} (${failure.code}). ${failure.hint}`
  }
}

/** What repeating does not help against: a person has to know. */
const isRefusal = (failure: Failure): boolean =>
  failure._tag === "Unauthorized" || failure._tag === "Forbidden" || failure._tag === "InvalidRequest"

/**
 * The control plane on another machine, by the client that its contract gives. What it answers a registration with
 * becomes the {@link NodeToken}. Nothing is repeated here: who calls does that.
 */
export const ControlPlaneClient = (options: ControlPlaneClientOptions) =>
  Layer.effect(
    ControlPlane,
    Effect.gen(function* () {
      const token = yield* NodeToken
      const { node } = yield* HttpApiClient.make(NodeApi, {
        baseUrl: options.url,
        transformClient: HttpClient.mapRequest(HttpClientRequest.bearerToken(options.key))
      })
      const deadline = Duration.fromInputUnsafe(options.deadline ?? "10 seconds")
      const params = { node: options.node_id }
      const required = new RegistrationRequired({ node_id: options.node_id })
      let refused = ""
      let away = false
      let registered: string | undefined

      /** A refusal is said once, not with every heartbeat. */
      const note = (failure: Failure) => {
        if (failure._tag === "NotFound" || !isRefusal(failure)) return Effect.void
        const detail = unavailable(failure)
        if (detail === refused) return Effect.void
        refused = detail
        return Effect.logError(`the control plane refuses this node: ${detail}`)
      }
      /** Away and back again is said once each. */
      const said = (nowAway: boolean) => {
        if (away === nowAway) return Effect.void
        away = nowAway
        return nowAway
          ? Effect.logWarning(`${options.url} cannot be reached: servers run on, reports wait`)
          : Effect.logInfo(`${options.url} can be reached again`)
      }
      const isAway = (failure: Failure) =>
        failure._tag === "HttpClientError" && failure.response === undefined
      const call = <A>(effect: Effect.Effect<A, Failure>, within = deadline) =>
        effect.pipe(
          Effect.tap(() => said(false)),
          Effect.tapError((failure) => said(isAway(failure))),
          Effect.tapError(note),
          Effect.mapError((failure) =>
            failure._tag === "NotFound"
              ? required
              : new ControlPlaneUnavailable({ detail: unavailable(failure) })
          ),
          Effect.timeoutOrElse({
            duration: within,
            orElse: () =>
              Effect.fail(
                new ControlPlaneUnavailable({ detail: "the control plane does not answer in time" })
              )
          })
        )

      const send = (boot_id: string, report: Report) => {
        const path = { node: options.node_id, server: report.server_id }
        const { sequence } = report
        switch (report.type) {
          case "status": {
            const { status, transient } = report
            return node.status({ params: path, payload: { boot_id, sequence, status, transient } })
          }
          case "install-status":
            return node.installStatus({
              params: path,
              payload: { boot_id, sequence, install: report.install }
            })
          case "crash":
            return node.crash({ params: path, payload: { boot_id, sequence, crash: report.crash } })
        }
      }

      if (options.goodbye) {
        yield* Effect.addFinalizer(() =>
          registered === undefined
            ? Effect.void
            : call(node.disconnect({ params, query: { boot_id: registered } }), GOODBYE).pipe(
                Effect.catch((error) => Effect.logWarning(`no good-bye: ${error._tag}`))
              )
        )
      }

      return ControlPlane.of({
        register: Effect.fn("ControlPlaneClient.register")(function* (registration) {
          const answer = yield* call(
            node.register({ params, payload: registration }),
            Duration.times(deadline, 3)
          ).pipe(
            Effect.catchTag("RegistrationRequired", () =>
              Effect.fail(
                new ControlPlaneUnavailable({ detail: "there is no control plane at this address" })
              )
            )
          )
          token.set(answer.token)
          refused = ""
          registered = registration.boot_id
          yield* Effect.logInfo(`registered with ${options.url} as ${options.node_id}`)
          return answer
        }),
        heartbeat: (_, heartbeat) => call(node.heartbeat({ params, payload: heartbeat })),
        disconnect: (_, boot_id) => call(node.disconnect({ params, query: { boot_id } })),
        report: (_, boot_id, report) => call(send(boot_id, report))
      })
    })
  )
