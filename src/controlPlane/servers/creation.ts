import { Clock, Effect, Exit, Schema } from "effect"
import type { CreationPlan } from "../../contract/api/ServersGroup.ts"
import { CurrentAudit, describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, type Forbidden, Unavailable } from "../../contract/domain/errors.ts"
import { type NodeId, ServerId, serverId } from "../../contract/domain/Id.ts"
import { beginStep } from "../../contract/domain/InstallState.ts"
import { idBytes } from "../../contract/domain/idBytes.ts"
import { expiryOf, type Labels } from "../../contract/domain/Labels.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { Overrides } from "../../contract/domain/Overrides.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { definitionView, type ServerDefinition } from "../../contract/domain/ServerDefinition.ts"
import { inSpan, traceparent } from "../../shared/observability/trace.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { CurrentPrincipal } from "../http/Principal.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../nodes/nodeAvailability.ts"
import type { PlacementRequest } from "../nodes/placementChoice.ts"
import { Journal } from "../store/journal/Journal.ts"
import { IdempotencyRepo, type IdempotentAnswer } from "../store/repos/IdempotencyRepo.ts"
import { Store } from "../store/Store.ts"
import { makeFromBackup, restoreOf } from "./fromBackup.ts"
import { ANSWER_LIFETIME, makeInsert } from "./insertion.ts"
import { ServerIndex } from "./list/ServerIndex.ts"
import { plain, summaryOf } from "./list/summary.ts"
import { creationRefusal, makeOverridesCheck } from "./state/callerLimits.ts"
import { makeQuotaUsage, type QuotaClaim } from "./state/quotaRules.ts"
import { CreationPriority } from "./state/ServersOptions.ts"

/** A request to create a server. `body_hash` is the SHA-256 of its body in hex. */
export interface CreateRequest {
  readonly blueprint_id: string
  readonly node_id?: NodeId
  readonly overrides: Overrides
  /** Whether the server starts once it is installed. If absent, the blueprint decides. */
  readonly start?: boolean
  /** The default of a blueprint without `start`; false if absent. */
  readonly startUnlessSaid?: boolean
  readonly name?: string
  readonly labels?: Labels
  /** Seconds. */
  readonly expires_in?: number
  /** The backup whose files the server gets before its first start. */
  readonly from_backup?: string
  /** Whether a drill makes the server. Its operation starts and deletes the server (spec 12.11). */
  readonly drill?: true
  readonly idempotency?: { readonly key: string; readonly body_hash: string }
}

/** Placements that are tried if other replicas take the capacity or the ports first. */
const ATTEMPTS = 5

interface Created {
  readonly id: ServerId
  readonly body: string
}

type Decided = CreateRequest & { readonly start: boolean }

const decodeId = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Struct({ id: ServerId })))

/** Returns the answer to an earlier request with the same key. @error Conflict it came with another body */
const repeat = Effect.fnUntraced(function* (answer: IdempotentAnswer, body_hash: string) {
  if (answer.body_hash !== body_hash) {
    return yield* new Conflict({
      detail: "the idempotency key was used with another body",
      hint: "Send another Idempotency-Key, or the same body as before."
    })
  }
  const { id } = yield* Effect.orDie(decodeId(answer.response))
  return { id, body: answer.response } satisfies Created
})

/** Checks a creation before it is placed: its definition, the limits of its caller, and the quotas. */
const makePreparation = Effect.gen(function* () {
  const blueprints = yield* BlueprintStore
  const store = yield* Store
  const usageOf = yield* makeQuotaUsage
  const checkOverrides = yield* makeOverridesCheck

  /** Refuses a creation that is beyond a quota already. The write decides. */
  const checkQuotas = (quotas: QuotaClaim["quotas"], definition: ServerDefinition) => {
    if (quotas.length === 0) return Effect.void
    const one = { quotas, record: { definition } }
    return Effect.flatMap(
      store.read(usageOf([one])),
      (usage): Effect.Effect<void, Forbidden> => usage.refusal(one) ?? Effect.void
    )
  }

  return Effect.fnUntraced(function* (
    { blueprint_id, node_id, overrides }: CreateRequest,
    server_id: ServerId
  ) {
    const definition = yield* blueprints.resolve(blueprint_id, overrides)
    yield* checkOverrides({ right: "create", blueprint_id, given: overrides, next: definition })
    const { limits, placement, ports, runtimes } = definition
    const needed: PlacementRequest = {
      server_id,
      blueprint_id,
      ...(node_id === undefined ? {} : { node_id }),
      limits,
      ports,
      runtimes,
      placement
    }
    yield* checkQuotas((yield* CurrentPrincipal)?.quotas ?? [], definition)
    return { definition, placement: needed }
  })
})

/** Refuses a creation outside the limits of its key. */
const checkCaller = Effect.fnUntraced(function* ({ blueprint_id, labels = {} }: CreateRequest) {
  const refusal = creationRefusal(yield* CurrentPrincipal, { blueprint_id, labels })
  if (refusal !== undefined) return yield* refusal
})

const makePlan = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const blueprints = yield* BlueprintStore
  const fromBackup = yield* makeFromBackup
  const prepare = yield* makePreparation

  return Effect.fn("ServerManager.plan")(function* (given: CreateRequest) {
    const request = yield* fromBackup(given)
    yield* checkCaller(request)
    const { definition, placement } = yield* prepare(request, serverId(idBytes(16)))
    const { candidates, chosen, warnings } = yield* balancer.preview(placement)
    return {
      definition: definitionView(definition),
      node_id: chosen ?? null,
      candidates,
      warnings: [...warnings, ...(yield* blueprints.notes(request.blueprint_id))]
    } satisfies CreationPlan
  })
})

/** Places and writes one server, and repeats both if another replica took its capacity or ports. */
const makeCreateNew = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const index = yield* ServerIndex
  const journal = yield* Journal
  const registry = yield* NodeRegistry
  const insert = yield* makeInsert
  const prepare = yield* makePreparation
  const { notConnected } = yield* makeNodeAvailability

  /** Releases a placement, unless a write with unknown outcome was committed. */
  const releasePlacement = (id: ServerId) =>
    Effect.suspend(() => (index.get(id) === undefined ? balancer.release(id) : Effect.void))

  const place = (request: PlacementRequest) =>
    Effect.catchTag(balancer.place(request), "Unavailable", (refusal) =>
      request.node_id === undefined || registry.isConnected(request.node_id)
        ? Effect.fail(refusal)
        : Effect.flatMap(notConnected(request.node_id), Effect.fail)
    )

  return Effect.fnUntraced(function* (request: Decided) {
    const caller = yield* CurrentPrincipal
    const now = yield* Clock.currentTimeMillis
    const id = serverId(idBytes(16))
    const created_at = new Date(now).toISOString()
    const { definition, placement } = yield* prepare(request, id)
    const trace = yield* traceparent

    const attempt = Effect.gen(function* () {
      const { node_id, allocations } = yield* inSpan("place")(place(placement))
      const placed_at = yield* nowText
      const record: ServerRecord = {
        id,
        blueprint_id: request.blueprint_id,
        node_id,
        allocations,
        ...(Object.keys(request.overrides).length === 0 ? {} : { overrides: request.overrides }),
        definition,
        status: "installing",
        install: {
          phase: "pending",
          steps: beginStep(beginStep([], "place", created_at), "commit", placed_at)
        },
        // The restore starts the server at its end.
        start_pending: request.start && request.from_backup === undefined,
        last_sequence: 0,
        created_at,
        updated_at: created_at,
        labels: request.labels ?? {},
        ...(request.name === undefined ? {} : { name: request.name }),
        ...(request.expires_in === undefined ? {} : { expires_at: expiryOf(now, request.expires_in) }),
        ...(caller === undefined ? {} : { created_by: caller.key_id }),
        ...(trace === undefined ? {} : { trace })
      }
      const body = JSON.stringify(summaryOf(record, registry.nameOf(node_id), plain))
      const insertion = yield* insert({
        record,
        body,
        placement,
        idempotency: request.idempotency,
        quotas: caller?.quotas ?? [],
        // The entry of a drill names the backup.
        audited: request.drill ? undefined : yield* CurrentAudit,
        restore:
          request.from_backup === undefined ? undefined : restoreOf(record, request.from_backup, request)
      }).pipe(
        (write) => index.creating(record, write),
        inSpan("commit"),
        Effect.onExit((exit) => {
          if (Exit.isFailure(exit)) return releasePlacement(id)
          if (exit.value._tag === "created") return Effect.void
          return exit.value._tag === "port-taken" ? balancer.releaseAndAvoidPorts(id) : balancer.release(id)
        })
      )
      return { insertion, body }
    }).pipe(Effect.uninterruptible)

    let reason = ""
    for (let tried = 0; tried < ATTEMPTS; tried++) {
      const { insertion, body } = yield* attempt
      if (insertion._tag === "created") return { id, body } satisfies Created
      if (insertion._tag === "repeated") {
        return yield* repeat(insertion.answer, request.idempotency?.body_hash ?? "")
      }
      if (insertion._tag === "over-quota") return yield* insertion.error
      reason = insertion._tag === "refused" ? insertion.reason : "its ports are taken"
      yield* journal.catchUp
    }
    return yield* new Unavailable({ detail: `other creations took the free capacity first: ${reason}` })
  })
})

/** Answers a repeated request with the response of the first one, and creates a server otherwise. */
const makeCreateOnce = Effect.gen(function* () {
  const createNew = yield* makeCreateNew
  const idempotency = yield* IdempotencyRepo
  const store = yield* Store
  const keys = makeKeyedLock()

  return (request: Decided) => {
    if (request.idempotency === undefined) return createNew(request)
    const { key, body_hash } = request.idempotency
    const answered = Effect.gen(function* () {
      const notBefore = (yield* Clock.currentTimeMillis) - ANSWER_LIFETIME
      const answer = yield* store.read(idempotency.find(key, notBefore))
      return yield* answer === undefined ? createNew(request) : repeat(answer, body_hash)
    })
    return keys.withLock(key)(answered)
  }
})

/**
 * Places a server, then writes its record, ports and first event at once. It repeats if another replica took the
 * capacity, and releases the placement on failure. An interruption waits for the write.
 */
export const makeCreation = Effect.gen(function* () {
  const blueprints = yield* BlueprintStore
  const priority = yield* CreationPriority
  const createOnce = yield* makeCreateOnce
  const fromBackup = yield* makeFromBackup

  const create = Effect.fnUntraced(function* (asked: CreateRequest) {
    const given = yield* fromBackup(asked)
    yield* checkCaller(given)
    const start =
      given.start ??
      (yield* blueprints.starts(given.blueprint_id, given.overrides)) ??
      given.startUnlessSaid ??
      false
    const created = yield* priority.creating(createOnce({ ...given, start }))
    if (!given.drill) yield* describeAudit({ id: created.id })
    return { ...created, start }
  }, inSpan("ServerManager.create"))

  return {
    /**
     * Returns once the record is durable and its ports are reserved. `body` is the JSON of the summary, `start`
     * whether the server starts once installed.
     *
     * @error NotFound       unknown blueprint, node or backup
     * @error InvalidRequest overrides that are not possible
     * @error Conflict       the idempotency key came with another body
     * @error Forbidden      the key is limited to other servers, or its quota is used up
     * @error Unavailable    no node fits, or the database cannot be reached
     */
    create,
    /** Returns what {@link create} would do now, with its errors. Stores and reserves nothing. */
    plan: yield* makePlan
  }
})
