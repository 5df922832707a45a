import { isDeepStrictEqual } from "node:util"
import { Effect, Option } from "effect"
import { CurrentAudit } from "../../contract/domain/AuditedRequest.ts"
import { changesBetween, revisionOf } from "../../contract/domain/compareDefinitions.ts"
import { type Forbidden, NotFound } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { own, type Path, pathText } from "../../contract/domain/json.ts"
import { admits } from "../../contract/domain/Key.ts"
import { mergeLabels, type ServerPatch } from "../../contract/domain/Labels.ts"
import type { OverridesChange } from "../../contract/domain/Overrides.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { DefinitionChange, ServerDefinition } from "../../contract/domain/ServerDefinition.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { changeOverrides } from "../blueprints/changeOverrides.ts"
import { CurrentPrincipal, currentRestriction, requireRight } from "../http/Principal.ts"
import { changeRefusal, makeOverridesCheck } from "./state/callerLimits.ts"
import { notOffline } from "./state/conflicts.ts"
import {
  isUnknownToNode,
  makeDeliver,
  makeNodeCalls,
  makeNodeErrors,
  type NodeCallError
} from "./state/nodeCalls.ts"
import { logFields } from "./state/recordChanges.ts"
import type { NewDefinition } from "./state/redefinitions.ts"
import { ServerLifecycle } from "./state/ServerLifecycle.ts"
import { ServerLocks } from "./state/ServersOptions.ts"
import { isFinished } from "./state/transitions.ts"

export interface RequestedChange extends ServerPatch {
  readonly overrides?: OverridesChange
}

export type GivenDefinition = Required<Pick<NewDefinition, "definition" | "overrides">>

export interface UpgradeRequest {
  readonly dry_run: boolean
  readonly blueprint_id?: string
}

export interface Upgrade {
  readonly changes: ReadonlyArray<DefinitionChange>
  readonly revision: string
}

/** Today's definition or the record's. If absent, today's where blueprint and node allow it. */
export type ReinstallDefinition = "today" | "kept"

/** Whether a server expires earlier than before. Without a time it never does. */
const isEarlier = (after: string | null | undefined, before: string | undefined) =>
  typeof after === "string" && (before === undefined || Date.parse(after) < Date.parse(before))

const isSettled = (record: ServerRecord, { expires_at, labels = {}, name }: ServerPatch) =>
  (name === undefined || name === (record.name ?? null)) &&
  (expires_at === undefined || expires_at === (record.expires_at ?? null)) &&
  isDeepStrictEqual(mergeLabels(record.labels, labels), record.labels)

const changedSettings = (record: ServerRecord, { expires_at, labels = {}, name }: ServerPatch) => [
  ...(name === undefined ? [] : ["name"]),
  ...(expires_at === undefined ? [] : ["expires_in"]),
  ...Object.entries(labels).flatMap(([label, value]) =>
    value === null && own(record.labels, label) === undefined ? [] : [pathText(["labels", label])]
  )
]

/**
 * Checks that the caller may read the server before and after the change, and has the right `delete` for a change
 * that deletes a staying server.
 */
const makeCallerChecks = Effect.gen(function* () {
  const restriction = yield* currentRestriction
  const quotas = (yield* CurrentPrincipal)?.quotas ?? []
  const refuseIf = (deletes: boolean, why: string) =>
    deletes ? requireRight("delete", `: ${why}`) : Effect.void
  return {
    quotas,
    limits: Effect.fnUntraced(function* (
      record: ServerRecord,
      next: { readonly blueprint_id?: string; readonly labels?: ServerPatch["labels"] }
    ) {
      if (!admits(restriction, record)) return yield* NotFound.server(record.id)
      const { blueprint_id = record.blueprint_id, labels = {} } = next
      const refusal = changeRefusal(restriction, { blueprint_id, labels: mergeLabels(record.labels, labels) })
      if (refusal !== undefined) return yield* refusal
    }),
    expiry: (record: ServerRecord, expires_at: string | null | undefined) =>
      refuseIf(isEarlier(expires_at, record.expires_at), "the server would expire earlier"),
    save: ({ definition }: ServerRecord, next: ServerDefinition) =>
      refuseIf(definition.save && !next.save, "without `save`, the server is deleted when it ends")
  }
})

type CallerChecks = Effect.Success<typeof makeCallerChecks>

/** The checks and writes that the routes share. */
const makeRedefine = Effect.gen(function* () {
  const lifecycle = yield* ServerLifecycle
  const deliver = yield* makeDeliver
  const { call, recordOf, refuseBusy, refuseMoving } = yield* makeNodeCalls
  const { failAway } = yield* makeNodeErrors
  const checkOverrides = yield* makeOverridesCheck

  /** Checks that the caller may give a server another definition of its overrides. */
  const checkKept = Effect.fnUntraced(function* (
    check: CallerChecks,
    before: ServerRecord,
    next: ServerDefinition
  ) {
    const { blueprint_id } = next
    yield* check.limits(before, next)
    yield* checkOverrides({ right: "change", blueprint_id, given: before.overrides ?? {}, next, before })
  })

  const checkNode = Effect.fnUntraced(function* (record: ServerRecord) {
    if (record.status === "unknown") return yield* failAway(record)
    yield* call(record, (daemon) =>
      // A server that is not installed gets the definition with its installation.
      Effect.catchIf(
        Effect.asVoid(daemon.find(record.id)),
        (error) => isUnknownToNode(error) && !isFinished(record.install),
        () => Effect.void
      )
    )
  })

  /** Sends the definition. If that fails, the {@link Provisioner} repeats it. */
  const send = (record: ServerRecord) =>
    Effect.catch(deliver(record), (error) =>
      Effect.logInfo(`the new definition is sent later: ${error._tag}`).pipe(
        Effect.annotateLogs(logFields(record))
      )
    )

  /** @param isOwn whether an operation asks that has the server for itself */
  const redefine = Effect.fnUntraced(function* <E>(
    id: ServerId,
    by: (record: ServerRecord) => Effect.Effect<NewDefinition, E>,
    isOwn = false
  ) {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    if (!isOwn) yield* refuseBusy(id)
    const { definition } = yield* by(record)
    if (!isDeepStrictEqual(definition, record.definition)) yield* checkNode(record)
    const { before, record: after } = yield* lifecycle.redefine(id, by)
    if (before !== after && after.redefinition?.delivered === false) yield* send(after)
  }, Effect.uninterruptible)

  return { checkKept, checkNode, redefine }
})

/** Installs servers again. */
const makeReinstall = Effect.gen(function* () {
  const blueprints = yield* BlueprintStore
  const lifecycle = yield* ServerLifecycle
  const { call, recordOf, refuseBusy, refuseMoving } = yield* makeNodeCalls
  const { failAway, failWith } = yield* makeNodeErrors
  const { checkKept, checkNode, redefine } = yield* makeRedefine

  /** Returns today's definition of a server to reinstall, unless the record keeps its definition. */
  const otherDefinition = Effect.fnUntraced(function* (
    record: ServerRecord,
    which: ReinstallDefinition | undefined
  ) {
    if (which === "kept") return undefined
    const resolved = blueprints.resolve(record.blueprint_id, record.overrides ?? {})
    const today =
      which === "today"
        ? yield* resolved
        : yield* Effect.option(resolved).pipe(Effect.map(Option.getOrUndefined))
    if (today === undefined || isDeepStrictEqual(today, record.definition)) return undefined
    yield* checkNode(record)
    return today
  })

  /** Changes the record first, so that no report precedes it. The {@link Provisioner} continues after a crash. */
  return Effect.fn("ServerManager.reinstall")(function* (
    id: ServerId,
    which: ReinstallDefinition | undefined
  ): Effect.fn.Return<void, NodeCallError | Forbidden> {
    const record = yield* recordOf(id)
    yield* refuseMoving(id)
    yield* refuseBusy(id)
    if (record.status === "unknown") return yield* failAway(record)
    if (record.status !== "offline") return yield* notOffline(record)
    const definition = yield* otherDefinition(record, which)
    if (definition !== undefined) {
      const check = yield* makeCallerChecks
      const by = Effect.fnUntraced(function* (now: ServerRecord) {
        yield* checkKept(check, now, definition)
        yield* check.save(now, definition)
        return { definition, reinstall: true, quotas: check.quotas } satisfies NewDefinition
      })
      return yield* redefine(id, by)
    }
    const daemon = yield* call(record, Effect.succeed)
    yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const before = yield* lifecycle.reinstall(id)
        yield* restore(daemon.reinstall(id)).pipe(
          // If the node has lost the server, the controller creates it there again.
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
})

/** The routes that change the definition of a server (spec 3.12). */
export const makeRedefining = Effect.gen(function* () {
  const blueprints = yield* BlueprintStore
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks
  const checkOverrides = yield* makeOverridesCheck
  const { recordOf } = yield* makeNodeCalls
  const { checkKept, redefine } = yield* makeRedefine
  const reinstall = yield* makeReinstall

  const patch = Effect.fn("ServerManager.patch")(function* (
    id: ServerId,
    { overrides, ...settings }: RequestedChange
  ) {
    const check = yield* makeCallerChecks
    yield* check.expiry(yield* recordOf(id), settings.expires_at)
    const audited = yield* CurrentAudit
    const within = (record: ServerRecord, isSame = true, named: ReadonlyArray<Path> = []) => {
      audited?.describe({ changes: [...changedSettings(record, settings), ...named.map(pathText)] })
      if (audited !== undefined) audited.isShareable = isSame && isSettled(record, settings)
      return check.limits(record, settings)
    }
    if (overrides === undefined) return yield* lifecycle.patch(id, settings, within)
    const by = Effect.fnUntraced(function* (record: ServerRecord) {
      yield* within(record, false)
      const { named, ...changed } = yield* changeOverrides(record, overrides, blueprints.resolve)
      yield* within(
        record,
        isDeepStrictEqual(changed.definition, record.definition) &&
          isDeepStrictEqual(changed.overrides, record.overrides ?? {}),
        named
      )
      yield* check.save(record, changed.definition)
      const { blueprint_id } = record
      yield* checkOverrides({ right: "change", blueprint_id, given: overrides, next: changed.definition })
      return { ...changed, settings, quotas: check.quotas } satisfies NewDefinition
    })
    yield* locks.withLock(id)(redefine(id, by))
  })

  const upgrade = Effect.fn("ServerManager.upgrade")(function* (id: ServerId, request: UpgradeRequest) {
    const today = (record: ServerRecord) =>
      blueprints.resolve(request.blueprint_id ?? record.blueprint_id, record.overrides ?? {})
    const check = yield* makeCallerChecks
    const audited = yield* CurrentAudit
    const record = yield* recordOf(id)
    const definition = yield* today(record)
    yield* checkKept(check, record, definition)
    const upgrade: Upgrade = {
      changes: changesBetween(record.definition, definition),
      revision: revisionOf(definition)
    }
    if (!request.dry_run) {
      const by = Effect.fnUntraced(function* (now: ServerRecord) {
        const definition = yield* today(now)
        yield* checkKept(check, now, definition)
        yield* check.save(now, definition)
        if (audited !== undefined) audited.isShareable = isDeepStrictEqual(definition, now.definition)
        return { definition, quotas: check.quotas } satisfies NewDefinition
      })
      yield* locks.withLock(id)(redefine(id, by))
    }
    return upgrade
  })

  /** Checks that the caller may give a server a definition of its own past, and returns the changes. */
  const checkGiven = Effect.fnUntraced(function* (
    before: ServerRecord,
    { definition: next, overrides: given }: GivenDefinition
  ) {
    const check = yield* makeCallerChecks
    yield* check.limits(before, next)
    yield* checkOverrides({ right: "change", blueprint_id: next.blueprint_id, given, next, before })
    yield* check.save(before, next)
    return changesBetween(before.definition, next)
  })

  return {
    checkGiven,
    /** Gives a server a definition that {@link checkGiven} has admitted, for an operation that has it for itself. */
    give: (id: ServerId, given: GivenDefinition) =>
      locks.withLock(id)(redefine(id, () => Effect.succeed(given), true)),
    /**
     * Changes name, labels, expiry and overrides of a server (spec 3.12).
     * @error Conflict       the server is being deleted; with overrides also: it migrates, or its blueprint is gone
     * @error Forbidden      the change deletes the server, and the caller may not delete servers
     * @error InvalidRequest too many labels, or overrides that do not fit
     * @error Unavailable    limits that do not fit on the node
     */
    patch,
    /** Resolves the definition of a server again and returns the changes. Errors as {@link patch}. */
    upgrade,
    /** Installs an offline server again. Today's definition adds the errors of {@link patch}. */
    reinstall: (id: ServerId, which?: ReinstallDefinition) => locks.withLock(id)(reinstall(id, which))
  } as const
})
