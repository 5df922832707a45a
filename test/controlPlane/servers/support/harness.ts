import { NodeServices } from "@effect/platform-node"
import {
  Context,
  type Duration,
  Effect,
  Exit,
  type FileSystem,
  Layer,
  References,
  Scope,
  Stream
} from "effect"
import type { DrainChoices } from "../../../../src/contract/domain/Drain.ts"
import { NotFound, Unavailable } from "../../../../src/contract/domain/errors.ts"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { type Change, isPublic } from "../../../../src/contract/domain/Journal.ts"
import type { ServerRecord } from "../../../../src/contract/domain/Server.ts"
import type { ServerDefinition } from "../../../../src/contract/domain/ServerDefinition.ts"
import { ControlPlane } from "../../../../src/contract/nodeApi/ControlPlaneApi.ts"
import { Backups } from "../../../../src/controlPlane/backups/Backups.ts"
import { BackupTargets } from "../../../../src/controlPlane/backups/BackupTargets.ts"
import { BlueprintStore } from "../../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { LiveFeed, StatsFeed } from "../../../../src/controlPlane/events/LiveFeed.ts"
import { ApiKeys } from "../../../../src/controlPlane/keys/ApiKeys.ts"
import { DaemonClient } from "../../../../src/controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../../../../src/controlPlane/nodes/fleet/Fleet.ts"
import { NodeMigrations } from "../../../../src/controlPlane/nodes/NodeRegistry.ts"
import { OperationsOptions } from "../../../../src/controlPlane/operations/OperationLeader.ts"
import type { OperationRunners } from "../../../../src/controlPlane/operations/OperationRunners.ts"
import { layerOperationsWith, Operations } from "../../../../src/controlPlane/operations/Operations.ts"
import { layerSchedules } from "../../../../src/controlPlane/schedules/ScheduleLeader.ts"
import { Schedules } from "../../../../src/controlPlane/schedules/Schedules.ts"
import { SchedulesOptions } from "../../../../src/controlPlane/schedules/steps.ts"
import { Provisioner } from "../../../../src/controlPlane/servers/controllers/Provisioner.ts"
import type { CreateRequest } from "../../../../src/controlPlane/servers/creation.ts"
import { layerServers } from "../../../../src/controlPlane/servers/layerServers.ts"
import type { Include } from "../../../../src/controlPlane/servers/list/summary.ts"
import { Rollouts } from "../../../../src/controlPlane/servers/rollouts/Rollouts.ts"
import { ServerManager } from "../../../../src/controlPlane/servers/ServerManager.ts"
import { ServerLifecycle } from "../../../../src/controlPlane/servers/state/ServerLifecycle.ts"
import { ServersOptions } from "../../../../src/controlPlane/servers/state/ServersOptions.ts"
import { Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { AuditRepo } from "../../../../src/controlPlane/store/repos/AuditRepo.ts"
import { KeepDeleted, KeptServerRepo } from "../../../../src/controlPlane/store/repos/DeletedServerRepo.ts"
import { KeyRepo } from "../../../../src/controlPlane/store/repos/KeyRepo.ts"
import { MigrationRepo } from "../../../../src/controlPlane/store/repos/MigrationRepo.ts"
import { OperationRepo } from "../../../../src/controlPlane/store/repos/OperationRepo.ts"
import { QuotaRepo } from "../../../../src/controlPlane/store/repos/QuotaRepo.ts"
import { ScheduleRepo } from "../../../../src/controlPlane/store/repos/ScheduleRepo.ts"
import { ServerRepo } from "../../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store, Transaction } from "../../../../src/controlPlane/store/Store.ts"
import { Webhooks } from "../../../../src/controlPlane/webhooks/Webhooks.ts"
import { layerWebhooks } from "../../../../src/controlPlane/webhooks/WebhooksFile.ts"
import { until } from "../../../support/eventually.ts"
import { branded, type Plain, plain } from "../../../support/ids.ts"
import { newPostgresDatabase } from "../../../support/postgresDatabase.ts"
import { definition } from "../../../support/samples.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { testDatabase } from "../../../support/testDatabase.ts"
import { storeAt } from "../../store/support/database.ts"
import { FakeDaemon } from "./FakeDaemon.ts"
import { FakeNodes } from "./FakeNodes.ts"

const blueprints: Record<string, ServerDefinition> = {
  survival: definition(),
  lobby: definition({ blueprint_id: "lobby", save: false }),
  tied: definition({
    blueprint_id: "tied",
    volumes: [{ name: "common", source: "common", target: "common", mode: "rw" }]
  }),
  mounted: definition({
    blueprint_id: "mounted",
    mounts: [{ source: "/srv/maps", target: "maps", mode: "rw" }]
  }),
  "two-ports": definition({ blueprint_id: "two-ports", ports: 2 })
}

/** Blueprints that resolve to these definitions. */
export const blueprintsOf = (definitions: Record<string, ServerDefinition>) =>
  Layer.succeed(
    BlueprintStore,
    BlueprintStore.of({
      list: Effect.succeed([]),
      mixins: Effect.succeed([]),
      get: (id) => Effect.fail(NotFound.blueprint(id)),
      mixin: (id) => Effect.fail(NotFound.mixin(id)),
      warnings: Effect.succeed([]),
      declared: () => Effect.succeed({ names: new Set(), allowed: [] }),
      starts: () => Effect.succeed(undefined),
      backupRule: () => Effect.succeed({}),
      whole: Effect.succeed({ blueprints: new Map(), isWhole: true }),
      quiesceRule: () => Effect.succeed(undefined),
      notes: () => Effect.succeed([]),
      reload: Effect.void,
      today: Effect.succeed({ revision: () => undefined }),
      resolve: (id, overrides) => {
        const found = definitions[id]
        return found === undefined
          ? Effect.fail(NotFound.blueprint(id))
          : Effect.succeed({ ...found, save: overrides.save ?? found.save })
      }
    })
  )

export const request = (change: Partial<Plain<CreateRequest>> = {}): CreateRequest => ({
  blueprint_id: "survival",
  overrides: {},
  start: false,
  ...branded<Partial<CreateRequest>>(change)
})

/** One database, one node with its daemon, and any number of control planes. */
export const makeHarness = Effect.fnUntraced(function* (
  options: {
    readonly ports?: number /** A second node with that many ports. */
    readonly otherPorts?: number
    /** Delay before a call to a node is repeated. */
    /** How long the files of deleted servers are kept, in seconds. */
    readonly keepDeleted?: number
    readonly retryFrom?: Duration.Input
    /** How long a server of a rollout may wait for its node. */
    readonly rolloutNodeTimeout?: Duration.Input
    /** How long an operation may wait for its node. */
    readonly operationNodeTimeout?: Duration.Input
    /** Registers the runners of operations. */
    /** Default: the kind of this test run. */
    readonly database?: typeof testDatabase
    readonly runners?: Layer.Layer<never, never, OperationRunners>
  } = {}
) {
  const folder = yield* temporaryFolder
  const url =
    (options.database ?? testDatabase) === "sqlite"
      ? `sqlite:${folder}/muster.db`
      : yield* Effect.orDie(newPostgresDatabase())
  const { otherPorts } = options
  const nodes = new FakeNodes(
    { id: "n1", ports: options.ports ?? 100 },
    ...(otherPorts === undefined ? [] : [{ id: "n2", ports: otherPorts }])
  )
  /** By blueprint; a change is that of a reload. */
  const definitions = { ...blueprints }
  const daemon = new FakeDaemon("n1")
  const other = new FakeDaemon("n2")

  /** While away, the database cannot be written. */
  const database = { away: false }
  const StoreTest = Layer.effect(
    Store,
    Effect.map(Store, (store) => {
      const unlessAway = <A, E>(write: Effect.Effect<A, E>) =>
        Effect.suspend(
          (): Effect.Effect<A, E | Unavailable> => (database.away ? Effect.fail(Unavailable.store()) : write)
        )
      return Store.of({
        ...store,
        write: (mutation) => unlessAway(store.write(mutation)),
        together: (mutation) => {
          const write = store.together(mutation)
          return (request) => unlessAway(write(request))
        }
      })
    })
  ).pipe(Layer.provideMerge(storeAt(url)))

  const layer = (own: FakeNodes) =>
    layerSchedules.pipe(
      Layer.provideMerge(layerWebhooks({ allowPrivate: true, variable: () => undefined })),
      Layer.provideMerge(
        Backups.layer.pipe(
          Layer.provideMerge(BackupTargets.layer({ allowPrivate: true, variable: () => undefined })),
          Layer.provide(Fleet.layer)
        )
      ),
      Layer.provideMerge(layerOperationsWith(options.runners ?? Layer.empty)),
      Layer.provide(
        Layer.succeed(SchedulesOptions, { patience: "1 second", grace: "1 minute", look: "20 seconds" })
      ),
      Layer.provideMerge(layerServers),
      Layer.provide(
        Layer.succeed(OperationsOptions, {
          perNode: 3,
          perServer: 2,
          nodeTimeout: options.operationNodeTimeout ?? "5 minutes",
          progressEvery: "5 millis"
        })
      ),
      Layer.provide(
        Layer.succeed(ServersOptions, {
          callsPerNode: 64,
          retryFrom: options.retryFrom ?? "1 millis",
          retryCap: options.retryFrom ?? "5 millis",
          migrationsPerNode: 2,
          migrationPause: "5 millis",
          rolloutPause: "5 millis",
          rolloutNodeTimeout: options.rolloutNodeTimeout ?? "5 minutes"
        })
      ),
      Layer.provideMerge(
        Layer.mergeAll(own.registry, own.balancer, DaemonClient.layer, blueprintsOf(definitions))
      ),
      Layer.provideMerge(ApiKeys.layer()),
      Layer.provideMerge(StoreTest),
      Layer.provide(Layer.succeed(KeepDeleted, options.keepDeleted ?? 0))
    )

  /** Starts a control plane; by default the node registers. `nodes`: its own view of the nodes. */
  const start = Effect.fnUntraced(function* (
    how: { readonly connect?: boolean; readonly nodes?: FakeNodes } = {}
  ) {
    const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
    const context = yield* Layer.buildWithScope(Layer.fresh(layer(how.nodes ?? nodes)), scope)
    const servers = plain(Context.get(context, ServerManager))
    const rollouts = plain(Context.get(context, Rollouts))
    const operations = plain(Context.get(context, Operations))
    const plane = Context.get(context, ControlPlane)
    const store = Context.get(context, Store)
    const repo = Context.get(context, ServerRepo)
    const journal = Context.get(context, Journal)
    const provisioner = Context.get(context, Provisioner)
    const lifecycle = Context.get(context, ServerLifecycle)
    const daemons = plain(Context.get(context, DaemonClient))

    /** Makes the node's daemon reachable; it does not register. */
    const attach = Scope.provide(daemons.attach("n1", daemon.daemon), scope)
    const connect = Effect.andThen(attach, Scope.provide(daemon.serve(plane), scope))
    const connectOther = Effect.andThen(
      Scope.provide(daemons.attach("n2", other.daemon), scope),
      Scope.provide(other.serve(plane), scope)
    )
    if (how.connect !== false) yield* connect
    if (how.connect !== false && otherPorts !== undefined) yield* connectOther
    const moves = plain(Context.get(context, NodeMigrations))
    /** Drains a node with move. */
    const drainWithMove = (id: string, choices: DrainChoices = {}) => {
      const node_id = NodeId.make(id)
      nodes.drained.add(node_id)
      return moves.begin(node_id, choices)
    }

    const records = store.read(repo.all)
    const changes = Effect.map(Stream.runCollect(journal.after(0)), (entries) =>
      entries.map((entry) => entry.change)
    )
    const events = (id?: string) =>
      Effect.map(changes, (all) =>
        all
          .filter((change) => isPublic(change) && (id === undefined || change.server_id === id))
          .map(describe)
      )
    const isStatus = (id: string, status: string) =>
      servers.status(id).pipe(
        Effect.map((present) => present === status),
        Effect.orElseSucceed(() => false)
      )
    const becomes = (id: string, status: string) => until(`${id} is ${status}`, isStatus(id, status))
    const isGone = (id: string) => Effect.isFailure(servers.status(id))
    const settled = until(
      "all reports are sent and nothing is being provisioned",
      Effect.map(
        provisioner.active,
        (active) => active === 0 && daemon.unsent.length === 0 && other.unsent.length === 0
      )
    )
    return {
      servers,
      rollouts,
      operations,
      schedules: plain(Context.get(context, Schedules)),
      scheduleRepo: Context.get(context, ScheduleRepo),
      webhooks: plain(Context.get(context, Webhooks)),
      keys: Context.get(context, ApiKeys),
      lifecycle: plain(lifecycle),
      plane: plain(plane),
      store,
      repo,
      journal,
      stats: plain(Context.get(context, StatsFeed)),
      live: Context.get(context, LiveFeed),
      attach,
      connect,
      connectOther,
      moves,
      moveRepo: Context.get(context, MigrationRepo),
      kept: Context.get(context, KeptServerRepo),
      keyRepo: Context.get(context, KeyRepo),
      operationRepo: Context.get(context, OperationRepo),
      quotaRepo: Context.get(context, QuotaRepo),
      /** Returns actor and reason of the entries about a server in the audit log. */
      audited: (object: string) =>
        Effect.map(store.read(Context.get(context, AuditRepo).find({ object, limit: 10 })), (entries) =>
          entries.map(({ action, actor, reason }) => [action, actor.name, reason])
        ),
      drainWithMove,
      records,
      changes,
      events,
      becomes,
      isGone,
      settled,
      stop: Scope.close(scope, Exit.void)
    }
  })

  /** Commits a record and its creation as another replica does. */
  const createElsewhere = (record: ServerRecord) =>
    Effect.gen(function* () {
      const store = yield* Store
      const repo = yield* ServerRepo
      const transaction = Effect.flatMap(Transaction, ({ append }) =>
        append({ topic: "server:created", server_id: record.id, payload: null }, record)
      )
      yield* store.write(Effect.andThen(repo.insert(record), transaction))
    }).pipe(Effect.provide(Layer.fresh(storeAt(url))))

  return { nodes, daemon, other, database, definitions, start, createElsewhere }
})

/** A public event in short form. */
const describe = (change: Change): string =>
  change.topic === "status" ? `status ${change.payload}` : change.topic

/** The ids of all servers, by creation. */
interface WithServers {
  readonly servers: ServerManager["Service"]
}

const pageOf = ({ servers }: WithServers) => Effect.orDie(servers.select({ filter: { labels: [] } }))

export const idsOf = (plane: WithServers) => Effect.map(pageOf(plane), ({ ids }) => ids)

/** Returns the summaries of all servers. */
export const listOf = (plane: WithServers, include: Include) =>
  Effect.map(
    Effect.flatMap(pageOf(plane), (page) => page.encode(include)),
    (body) => JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body))
  )

export const runHarness = <A, E>(effect: Effect.Effect<A, E, Scope.Scope | FileSystem.FileSystem>) =>
  effect.pipe(
    Effect.scoped,
    Effect.provide(NodeServices.layer),
    Effect.provideService(References.MinimumLogLevel, "None")
  )
