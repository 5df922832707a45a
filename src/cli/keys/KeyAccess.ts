/** The keys of a service, or of the database of a stopped one. */
import { resolve } from "node:path"
import { Console, Context, Duration, Effect, Layer, Redacted } from "effect"
import { CommandLogging } from "../../app/logging.ts"
import { AS_THE_SERVICE, databaseOf, StoreLayer } from "../../app/storage.ts"
import type { MusterClient } from "../../client/index.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import type { Key, KeyGrant } from "../../contract/domain/Key.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { auditedCommand } from "../../controlPlane/audit/AuditLog.ts"
import { ApiKeys } from "../../controlPlane/keys/ApiKeys.ts"
import { keyNodes } from "../../controlPlane/keys/NodeKeys.ts"
import { Leadership } from "../../controlPlane/store/Leadership.ts"
import { mustExist } from "../../controlPlane/store/layers/layerDatabase.ts"
import { ServerRepo } from "../../controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../controlPlane/store/Store.ts"
import { lockFileOf, takeServiceLock } from "../../controlPlane/store/sqlite/database.ts"
import { describeDatabase } from "../../shared/config/DatabaseUrl.ts"
import { StartError } from "../../shared/config/StartError.ts"
import { loadServiceSettings } from "../../shared/config/service.ts"
import { switchFlag } from "../shared/command.ts"
import { ifMissing } from "../shared/failures.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { serversOf } from "../shared/named.ts"
import type { CommandTarget } from "../shared/target.ts"

export const databaseFlag = switchFlag(
  "database",
  "Work on the database of a stopped service (MUSTER_DATA_DIR or MUSTER_DATABASE_URL), in place of a service"
)

export interface ListedKey extends Key {
  readonly node_id: NodeId | null
  readonly last_seen_at: string | null
}

type Named = Pick<Server, "id" | "name">
/** Each way has failures of its own; the command prints their messages. */
type Failure = { readonly _tag: string; readonly message: string }

const none = { node_id: null, last_seen_at: null }

export class KeyAccess extends Context.Service<
  KeyAccess,
  {
    create(
      key: KeyGrant & { readonly name: string; readonly expires?: Duration.Duration }
    ): Effect.Effect<{ readonly id: string; readonly key: string }, Failure>
    readonly list: Effect.Effect<ReadonlyArray<ListedKey>, Failure>
    revoke(id: string): Effect.Effect<void, Failure>
    servers(text: string): Effect.Effect<ReadonlyArray<Named>, Failure>
    /** Whether there is a blueprint with this id; undefined: it is not known. */
    hasBlueprint(id: string): Effect.Effect<boolean | undefined, Failure>
  }
>()("muster/cli/KeyAccess") {
  static readonly layerService = Layer.effect(
    KeyAccess,
    Effect.gen(function* () {
      const context = yield* Effect.context<CommandTarget | MusterClient>()
      const call = <A, E extends object>(use: (muster: MusterClient["Service"]) => Effect.Effect<A, E>) =>
        Effect.provideContext(ask(use), context)
      return KeyAccess.of({
        create: ({ expires, ...grant }) =>
          call((muster) =>
            muster.keys.create({
              payload: {
                ...grant,
                ...(expires === undefined ? {} : { expires_in: Duration.toSeconds(expires) })
              }
            })
          ),
        list: Effect.map(
          call((muster) => muster.keys.list({ query: { include: "node" } })),
          (keys) => keys.map((key) => ({ ...none, ...key }))
        ),
        revoke: (id) => call((muster) => muster.keys.revoke({ params: { key: id } })),
        servers: (text) =>
          Effect.provideContext(serversOf({ q: text, include: "name", limit: "1000" }), context),
        hasBlueprint: (id) =>
          call((muster) => muster.blueprints.get({ params: { blueprint: id } })).pipe(
            Effect.as(true),
            ifMissing(() => Effect.succeed(false))
          )
      })
    })
  ).pipe(Layer.provide(CommandClient))

  /** The keys in the database of the settings, which must exist. @error StartError a service uses the database */
  static readonly layerDatabase = Layer.unwrap(
    Effect.gen(function* () {
      const settings = yield* loadServiceSettings
      const dataDir = resolve(settings.dataDir)
      const database = databaseOf(settings, dataDir)
      const name = describeDatabase(database)
      yield* mustExist(database, AS_THE_SERVICE)
      const inUse = new StartError({
        message: `a service uses the database ${name}: run the command without --database, or stop the service`
      })
      const stopped =
        database._tag === "Postgres"
          ? Layer.empty
          : Layer.effectDiscard(
              Effect.catchIf(
                takeServiceLock(lockFileOf(database.filename), database.filename),
                ({ reason }) => reason === "InUse",
                () => Effect.fail(inUse)
              )
            )
      const access = Layer.effect(
        KeyAccess,
        Effect.gen(function* () {
          if (yield* (yield* Leadership).othersServe) return yield* inUse
          yield* Console.error(`On the database of a stopped service: ${name}.`)
          const keys = yield* ApiKeys
          const repo = yield* ServerRepo
          const store = yield* Store
          const context = yield* Effect.context<Effect.Services<typeof keyNodes>>()
          return KeyAccess.of({
            create: (settings) =>
              keys.create(settings).pipe(
                auditedCommand("key.create"),
                Effect.map(({ key, record: { id } }) => ({ id, key: Redacted.value(key) }))
              ),
            list: Effect.gen(function* () {
              const nodes = yield* Effect.provideContext(keyNodes, context)
              return (yield* keys.list).map(({ hash: _, ...key }) => ({
                ...key,
                ...(nodes.get(key.id) ?? none)
              }))
            }),
            revoke: (id) => keys.revoke(id).pipe(auditedCommand("key.revoke", id)),
            servers: (text) => store.read(repo.named(text)),
            hasBlueprint: () => Effect.undefined
          })
        })
      )
      return access.pipe(
        Layer.provide(ApiKeys.layer()),
        Layer.provide(StoreLayer(settings, dataDir)),
        Layer.provide(stopped)
      )
    })
  ).pipe(Layer.provideMerge(CommandLogging))

  static readonly layer = (database: boolean): Layer.Layer<KeyAccess, Failure> =>
    database ? KeyAccess.layerDatabase : KeyAccess.layerService
}
