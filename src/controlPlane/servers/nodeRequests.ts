import { Effect } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import { withProgress } from "../../contract/domain/InstallState.ts"
import type { InstallReport } from "../../contract/domain/NodeMessages.ts"
import type { ConsolePage } from "../../contract/domain/Pagination.ts"
import type { Daemon, DaemonError, LinesRequest } from "../../contract/nodeApi/Daemon.ts"
import { InstallProgresses } from "./list/InstallProgresses.ts"
import { callerName, makePower } from "./powerActions.ts"
import { wrongStatus } from "./state/conflicts.ts"
import { isUnknownToNode, makeNodeCalls, makeNodeErrors } from "./state/nodeCalls.ts"
import { isFinished } from "./state/transitions.ts"
import { makeWaitForReport } from "./waiting.ts"

const noLines: ConsolePage = { items: [], total: 0 }

/**
 * The routes that call a server's node (spec 3.9). They check existence (404), then state (409), then call (503,
 * 502). Only the node's reports change the status.
 */
export const makeNodeRequests = Effect.gen(function* () {
  const progresses = yield* InstallProgresses
  const waitForReport = yield* makeWaitForReport
  const { call, recordOf, refuseBusy, refuseMoving } = yield* makeNodeCalls
  const { failAway, unavailableReason } = yield* makeNodeErrors

  const ask = <A, R>(id: ServerId, use: (daemon: Daemon) => Effect.Effect<A, DaemonError, R>) =>
    Effect.flatMap(recordOf(id), (record) => call(record, use))

  const lines = Effect.fnUntraced(function* (
    id: ServerId,
    use: (daemon: Daemon) => Effect.Effect<ConsolePage, DaemonError>
  ) {
    const record = yield* recordOf(id)
    return yield* call(record, (daemon) =>
      Effect.catchIf(
        use(daemon),
        (error) => isUnknownToNode(error) && !isFinished(record.install),
        () => Effect.succeed(noLines)
      )
    )
  })

  const commands = Effect.fn("ServerManager.commands")(function* (
    id: ServerId,
    input: ReadonlyArray<string>
  ) {
    const record = yield* recordOf(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status !== "running" && record.status !== "starting") return yield* wrongStatus(record)
    const by = yield* callerName
    yield* call(record, (daemon) => daemon.commands(id, input, by))
  })

  const reset = Effect.fn("ServerManager.reset")(function* (id: ServerId) {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    yield* refuseBusy(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status === "installing") return yield* wrongStatus(record)
    const sequence = yield* call(record, (daemon) => daemon.reset(id))
    if (sequence !== undefined) yield* waitForReport(record, sequence)
  })

  const install = Effect.fn("ServerManager.install")(function* (id: ServerId) {
    const record = yield* recordOf(id)
    const script = record.definition.install_script
    const waits = record.install.phase === "pending" ? yield* unavailableReason(record.node_id) : undefined
    const steps = record.install.steps ?? []
    const progress = progresses.of(record)
    return {
      ...record.install,
      steps: progress === undefined ? steps : withProgress(steps, progress),
      ...(waits === undefined ? {} : { waiting_reason: waits }),
      entrypoint: script?.entrypoint ?? "",
      script: script?.script ?? "",
      skip_scripts: script?.skip_scripts ?? false
    } satisfies InstallReport
  })

  return {
    status: (id: ServerId) => Effect.map(recordOf(id), (record) => record.status),
    /**
     * @param wait_seconds default: the stop timeout of the server
     * @error Forbidden `wait_seconds` is below the stop timeout, and the caller may not kill
     */
    power: yield* makePower,
    commands,
    reset,
    install,
    stats: Effect.fn("ServerManager.stats")(
      (id: ServerId, options: { readonly update_disk_usage: boolean }) =>
        ask(id, (daemon) => daemon.stats(id, options))
    ),
    logs: Effect.fn("ServerManager.logs")((id: ServerId, request: LinesRequest) =>
      lines(id, (daemon) => daemon.logs(id, request))
    ),
    installLogs: Effect.fn("ServerManager.installLogs")((id: ServerId, request: LinesRequest) =>
      lines(id, (daemon) => daemon.installLogs(id, request))
    ),
    console: Effect.fn("ServerManager.console")((id: ServerId) => ask(id, (daemon) => daemon.console(id)))
  } as const
})
