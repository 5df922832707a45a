import { Clock, Effect, Option, Result } from "effect"
import type { HttpApiClient } from "effect/http-api"
import {
  type ControlPlaneError,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../api/ControlPlane.ts"
import type { NodeApi } from "../../api/NodeApi.ts"
import type { NodeId } from "../../domain/Id.ts"
import type { Report, ReportsAnswer } from "../../domain/NodeMessages.ts"
import type { Failure } from "./diagnosis.ts"

/** Reports in flight on the routes for one report; the other connections remain for heartbeats. */
const CONCURRENT_REPORTS = 16

/** The time after which a control plane of an earlier version may have been upgraded, in ms. */
const EARLIER_VERSION = 60_000

type Outcomes = ReadonlyArray<ControlPlaneError | undefined>

/**
 * Sends reports to the control plane: in one message, or by the routes for one report if it refuses the message. That may
 * be due to a single report, or the control plane is of an earlier version that has no other routes.
 */
export const makeReportMessages = ({
  call,
  node,
  node_id
}: {
  readonly node: HttpApiClient.ForApi<typeof NodeApi>["node"]
  readonly node_id: NodeId
  readonly call: <A>(effect: Effect.Effect<A, Failure>) => Effect.Effect<A, ControlPlaneError>
}) => {
  const required = new RegistrationRequired({ node_id })
  let isEarlierUntil = 0

  const sendOne = (boot_id: string, { server_id, ...report }: Report) => {
    const params = { node: node_id, server: server_id }
    switch (report.type) {
      case "status": {
        const { type: _, ...payload } = report
        return node.status({ params, payload: { boot_id, ...payload } })
      }
      case "install-status": {
        const { type: _, ...payload } = report
        return node.installStatus({ params, payload: { boot_id, ...payload } })
      }
      case "crash": {
        const { type: _, ...payload } = report
        return node.crash({ params, payload: { boot_id, ...payload } })
      }
    }
  }

  /** The reports of one server until one fails, which is then the failure of the later ones. */
  const sendOneByOne = Effect.fnUntraced(function* (boot_id: string, reports: ReadonlyArray<Report>) {
    const outcomes: Array<ControlPlaneError | undefined> = []
    let failure: ControlPlaneError | undefined
    for (const report of reports) {
      failure ??= Option.getOrUndefined(yield* Effect.option(Effect.flip(call(sendOne(boot_id, report)))))
      outcomes.push(failure)
    }
    return outcomes
  })

  const sendSingly = Effect.fnUntraced(function* (boot_id: string, reports: ReadonlyArray<Report>) {
    const byServer = [...Map.groupBy(reports, ({ server_id }) => server_id).values()]
    const outcomes = yield* Effect.forEach(byServer, (own) => sendOneByOne(boot_id, own), {
      concurrency: CONCURRENT_REPORTS
    })
    const byReport = new Map(byServer.flatMap((own, at) => own.map((one, n) => [one, outcomes[at]?.[n]])))
    return reports.map((report) => byReport.get(report))
  })

  /** Undefined if the control plane fails at the message: one of its reports may be the reason. */
  const sendTogether = (boot_id: string, reports: ReadonlyArray<Report>) =>
    node.events({ params: { node: node_id }, payload: { boot_id, reports } }).pipe(
      Effect.map((answer) => outcomesOf(answer, reports.length)),
      Effect.catchTag("InternalError", () => Effect.succeed(undefined)),
      call
    )

  const outcomesOf = ({ failures }: ReportsAnswer, count: number): Outcomes => {
    const byIndex = new Map(failures.map((failure) => [failure.index, failure]))
    return Array.from({ length: count }, (_, index) => {
      const failure = byIndex.get(index)
      if (failure === undefined) return undefined
      return failure.status === 404 ? required : new ControlPlaneUnavailable({ detail: failure.detail })
    })
  }

  return {
    /** See `ControlPlane.reports`. */
    send: Effect.fnUntraced(function* (
      boot_id: string,
      reports: ReadonlyArray<Report>
    ): Effect.fn.Return<Outcomes, ControlPlaneError> {
      const now = yield* Clock.currentTimeMillis
      if (now < isEarlierUntil) return yield* sendSingly(boot_id, reports)
      const answer = yield* Effect.result(sendTogether(boot_id, reports))
      if (Result.isSuccess(answer)) return answer.success ?? (yield* sendSingly(boot_id, reports))
      const { failure } = answer
      if (failure._tag === "RegistrationRequired") {
        // The route is missing if the one for a single report is there.
        const [first] = yield* sendOneByOne(boot_id, reports.slice(0, 1))
        if (first?._tag === "RegistrationRequired") return yield* first
        isEarlierUntil = now + EARLIER_VERSION
      } else if (failure.refuses !== "message") return yield* failure
      return yield* sendSingly(boot_id, reports)
    }),
    /** The node has registered, maybe with an upgraded control plane. */
    registered: () => {
      isEarlierUntil = 0
    }
  } as const
}
