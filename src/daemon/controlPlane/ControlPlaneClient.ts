import { Duration, Effect, Layer, type Redacted, Stream } from "effect"
import { HttpClient, HttpClientError, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import {
  ControlPlane,
  type ControlPlaneError,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../api/ControlPlane.ts"
import { NodeApi } from "../../api/NodeApi.ts"
import { undecodableFails } from "../../api/undecodable.ts"
import type { Report } from "../../domain/NodeMessages.ts"
import { type Diagnosis, diagnose, type Failure } from "./diagnosis.ts"
import { type LinkLog, makeLinkLog } from "./LinkLog.ts"
import { NodeToken } from "./NodeToken.ts"

export interface ControlPlaneClientOptions {
  readonly node_id: string
  /** Where the control plane is. */
  readonly url: string
  /** A key with the scope `Node`. */
  readonly key: Redacted.Redacted<string>
  /** Says good-bye when this layer is released: the servers were stopped, and it may be for good. */
  readonly deregister: boolean
  /** Of each call. Default 10 s; a registration has three times that. */
  readonly deadline?: Duration.Input
}

/** How long a good-bye may take. */
const GOODBYE = Duration.seconds(2)

const late: Diagnosis = { state: "away", detail: "no answer in time" }
const brokenOff: Diagnosis = { state: "away", detail: "the files have broken off" }
const nowhere: Diagnosis = {
  state: "stranger",
  detail: "there is no control plane: check MUSTER_CONTROL_URL"
}

const unavailable = ({ detail }: Diagnosis, refuses?: "node" | "message") =>
  new ControlPlaneUnavailable({ detail, ...(refuses === undefined ? {} : { refuses }) })

/** Whether the key is what is refused: nothing else is worth trying with it. */
const isOfKey = ({ _tag }: Failure) => _tag === "Unauthorized" || _tag === "Forbidden"

/** What repeating does not help against. */
const isOfMessage = ({ _tag }: Failure) =>
  _tag === "InvalidRequest" || _tag === "BodyTooLarge" || _tag === "Conflict"

/** What becomes of a node that ends without the control plane's knowing it. */
const noGoodbye = (url: string, error: ControlPlaneError) =>
  error._tag === "RegistrationRequired"
    ? Effect.logInfo(`${url} does not know this start of the node any more: no good-bye is needed`)
    : Effect.logWarning(
        `${url} could not be told that this node ends (${error.detail}): it counts the node as lost after its MUSTER_NODE_HEARTBEAT_TIMEOUT; reports that wait are sent at the next start`
      )

/**
 * Every answer of a control plane names its request (decisions, section 1). Something else that listens there and
 * answers 200 must not be taken for one that has heard a report.
 */
const onlyOfMuster = HttpClient.transformResponse(
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
        transformClient: (client) =>
          onlyOfMuster(HttpClient.mapRequest(client, HttpClientRequest.bearerToken(options.key)))
      })
      const log = makeLinkLog(options.url)
      // What the last call fails with is told in words of its own: no servers run on.
      const lastLog = { well: Effect.void, failed: () => Effect.void }
      const deadline = Duration.fromInputUnsafe(options.deadline ?? "10 seconds")
      const params = { node: options.node_id }
      const required = new RegistrationRequired({ node_id: options.node_id })
      let registered: string | undefined

      const call = <A>(
        effect: Effect.Effect<A, Failure>,
        within = deadline,
        { failed, well }: Pick<LinkLog, "failed" | "well"> = log
      ) =>
        undecodableFails(effect).pipe(
          Effect.timeoutOrElse({ duration: within, orElse: () => Effect.fail("late" as const) }),
          Effect.tap(() => well),
          Effect.catch((failure): Effect.Effect<never, ControlPlaneError> => {
            if (failure === "late") return Effect.andThen(failed(late), Effect.fail(unavailable(late)))
            if (failure._tag === "NotFound") return Effect.fail(required)
            // Nothing is wrong with the connection: another registration came a moment ago.
            if (failure._tag === "TooManyRequests") {
              return Effect.fail(new ControlPlaneUnavailable({ detail: failure.detail, busy: true }))
            }
            const diagnosis = diagnose(failure, registered !== undefined)
            if (isOfKey(failure) && diagnosis.state !== "stranger") {
              // Whoever has the token of a key that is not valid any more shall not do anything with it.
              token.clear()
              return Effect.andThen(failed(diagnosis), Effect.fail(unavailable(diagnosis, "node")))
            }
            return isOfMessage(failure)
              ? Effect.fail(unavailable(diagnosis, "message"))
              : Effect.andThen(failed(diagnosis), Effect.fail(unavailable(diagnosis)))
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

      if (options.deregister) {
        yield* Effect.addFinalizer(() =>
          registered === undefined
            ? Effect.void
            : call(node.disconnect({ params, query: { boot_id: registered } }), GOODBYE, lastLog).pipe(
                Effect.catch((error) => noGoodbye(options.url, error))
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
              Effect.andThen(log.failed(nowhere), Effect.fail(unavailable(nowhere)))
            ),
            Effect.tapError(({ detail, refuses }) =>
              refuses === "message" ? log.failed({ state: "refused", detail }) : Effect.void
            )
          )
          token.set(answer.token)
          registered = registration.boot_id
          yield* Effect.logInfo(`registered with ${options.url} as ${options.node_id}`)
          return answer
        }),
        heartbeat: (_, heartbeat) =>
          Effect.flatMap(call(node.heartbeat({ params, payload: heartbeat })), (answer) =>
            log.unreachable(answer?.unreachable)
          ),
        disconnect: (_, boot_id) => call(node.disconnect({ params, query: { boot_id } })),
        report: (_, boot_id, report) => call(send(boot_id, report)),
        // Its failures say nothing of the control plane: another node may be what is away.
        files: (_, server_id) =>
          node.files({ params: { ...params, server: server_id } }).pipe(
            Effect.mapError((failure) =>
              unavailable(
                failure._tag === "NotFound" ? { state: "refused", detail: failure.detail } : diagnose(failure)
              )
            ),
            Effect.timeoutOrElse({
              duration: Duration.times(deadline, 3),
              orElse: () => Effect.fail(unavailable(late))
            }),
            Effect.map(Stream.mapError(() => unavailable(brokenOff)))
          )
      })
    })
  )
