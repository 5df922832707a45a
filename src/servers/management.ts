import { Effect, Option } from "effect"
import type { Daemon, DaemonError, LinesRequest } from "../api/Daemon.ts"
import { type Conflict, NotFound, type Unavailable } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { withProgress } from "../domain/InstallStep.ts"
import { isUnderway } from "../domain/Migration.ts"
import type { InstallReport, PowerAction } from "../domain/NodeMessages.ts"
import type { Page } from "../domain/Pagination.ts"
import { isRestartPending } from "../domain/Restart.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { stopTimeoutOf } from "../domain/ServerDefinition.ts"
import { isUp } from "../domain/ServerStatus.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { InstallProgresses } from "./index/InstallProgresses.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import { makeNoteStop } from "./noteStop.ts"
import { isLoss, makeNodeErrors } from "./records/nodeErrors.ts"
import { decidePower, isMoving, notOffline, wrongStatus } from "./records/power.ts"
import { logFields } from "./records/recordChanges.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"
import { ServerLocks } from "./records/ServerLocks.ts"
import { isFinished } from "./records/transitions.ts"

const isUnknownToNode = (error: DaemonError): boolean =>
  error._tag === "DaemonRefused" && error.status === 404

const noLines: Page<string> = { items: [], total: 0 }

/**
 * The routes that call a server's node (decisions, "Management routes"). They check existence (404), then the state
 * (409), then call the node (503, 502). Only reports of the node change the status.
 */
export const makeManagement = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks
  const progresses = yield* InstallProgresses
  const noteStop = yield* makeNoteStop
  const { failAway, failWith, unavailableReason } = yield* makeNodeErrors

  const recordOf = Effect.fnUntraced(function* (id: ServerId) {
    const record = Option.getOrUndefined(yield* index.lookUp(id))
    return record ?? (yield* NotFound.server(id))
  })

  /** Fails with a refusal; that of an unavailable node has the reason. */
  const refuse = (
    record: ServerRecord,
    refusal: Conflict | Unavailable
  ): Effect.Effect<never, Conflict | Unavailable> =>
    refusal._tag === "Unavailable" ? failAway(record) : Effect.fail(refusal)

  /** Calls the node; a server that the node has lost is marked for verification. */
  const call = <A, R>(record: ServerRecord, use: (daemon: Daemon) => Effect.Effect<A, DaemonError, R>) =>
    daemons.of(record.node_id).pipe(
      Effect.flatMap(use),
      Effect.tapError((error) =>
        isLoss(record, error)
          ? Effect.catch(lifecycle.markForVerification([record.id]), (failure) =>
              Effect.logWarning(`the server is lost and cannot be verified: ${failure.detail}`).pipe(
                Effect.annotateLogs(logFields(record))
              )
            )
          : Effect.void
      ),
      Effect.catch((error) => failWith(record, error))
    )

  const ask = <A, R>(id: ServerId, use: (daemon: Daemon) => Effect.Effect<A, DaemonError, R>) =>
    Effect.flatMap(recordOf(id), (record) => call(record, use))

  /** Reads lines of a server; none before its installation. */
  const lines = Effect.fnUntraced(function* (
    id: ServerId,
    use: (daemon: Daemon) => Effect.Effect<Page<string>, DaemonError>
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

  const refuseMoving = Effect.fnUntraced(function* (id: ServerId) {
    if (isUnderway(yield* index.migrationOf(id))) return yield* Effect.fail(isMoving(id))
  })

  const callPower = (
    record: ServerRecord,
    action: PowerAction,
    wait_seconds = stopTimeoutOf(record.definition)
  ) => call(record, (daemon) => daemon.power(record.id, action, wait_seconds))

  /** A migrating server can be stopped: it then stays stopped after the migration. */
  const powerMoving = Effect.fnUntraced(function* (id: ServerId, action: PowerAction, wait_seconds?: number) {
    if (action !== "stop" && action !== "kill") return yield* Effect.fail(isMoving(id))
    const stop = Effect.gen(function* () {
      yield* lifecycle.forgetStart(id)
      const record = yield* recordOf(id)
      if (record.status === "unknown") return yield* failAway(record)
      if (isUp(record.status) || isRestartPending(record.restart))
        yield* callPower(record, action, wait_seconds)
    })
    yield* locks.withLock(id)(stop)
  })

  /** Cancels the start of a server that is installing; if it is installed by now, calls the node. */
  const cancelStart = Effect.fnUntraced(function* <E>(id: ServerId, called: Effect.Effect<void, E>) {
    const cancel = Effect.gen(function* () {
      yield* lifecycle.forgetStart(id)
      const { status } = yield* recordOf(id)
      if (status !== "installing") yield* called
    })
    yield* locks.withLock(id)(cancel)
  })

  const power = Effect.fn("ServerManager.power")(function* (
    id: ServerId,
    action: PowerAction,
    wait_seconds?: number
  ) {
    const record = yield* recordOf(id)
    if (action === "stop" || action === "kill") yield* noteStop(id)
    if (isUnderway(yield* index.migrationOf(id))) return yield* powerMoving(id, action, wait_seconds)
    const decision = decidePower(record, action)
    const called = callPower(record, action, wait_seconds)
    if (decision === "defer") {
      // Otherwise the installation has ended in the meantime.
      if (!(yield* lifecycle.deferStart(id))) yield* called
      return
    }
    if (decision === "cancel") return yield* cancelStart(id, called)
    if (decision !== "call") return yield* refuse(record, decision)
    if (!record.start_pending || (action !== "stop" && action !== "kill")) return yield* called
    // A stop cancels a pending start.
    yield* locks.withLock(id)(Effect.andThen(lifecycle.forgetStart(id), called))
  })

  const commands = Effect.fn("ServerManager.commands")(function* (
    id: ServerId,
    input: ReadonlyArray<string>
  ) {
    const record = yield* recordOf(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status !== "running" && record.status !== "starting") return yield* wrongStatus(record)
    yield* call(record, (daemon) => daemon.commands(id, input))
  })

  const reset = Effect.fn("ServerManager.reset")(function* (id: ServerId) {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status === "installing") return yield* wrongStatus(record)
    yield* call(record, (daemon) => daemon.reset(id))
  })

  /**
   * Changes the record first, so that no report of the node precedes it. After a crash in between, the
   * {@link Provisioner} calls the node.
   */
  const reinstall = Effect.fn("ServerManager.reinstall")(function* (id: ServerId) {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status !== "offline") return yield* notOffline(record)
    const daemon = yield* call(record, Effect.succeed)
    yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const before = yield* lifecycle.reinstall(id)
        yield* restore(daemon.reinstall(id)).pipe(
          // A server that the node has lost is installed all the same.
          Effect.catchIf(isUnknownToNode, () => Effect.void),
          Effect.tapError(() =>
            Effect.catch(lifecycle.undoReinstall(before), (error) =>
              Effect.logWarning(`a refused reinstallation was not undone: ${error.detail}`).pipe(
                Effect.annotateLogs(logFields(before))
              )
            )
          ),
          Effect.catch((error) => failWith(before, error))
        )
      })
    )
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
    power,
    commands,
    reset,
    reinstall: (id: ServerId) => locks.withLock(id)(reinstall(id)),
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
