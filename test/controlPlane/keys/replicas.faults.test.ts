import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, References } from "effect"
import { ApiKeys } from "../../../src/controlPlane/keys/ApiKeys.ts"
import { until } from "../../support/eventually.ts"
import { newPostgresDatabase, statementsOn } from "../../support/postgresDatabase.ts"
import { storeAt } from "../store/support/database.ts"

const replicaAt = (url: string) =>
  Effect.map(Layer.build(Layer.fresh(ApiKeys.layer().pipe(Layer.provide(storeAt(url))))), (context) =>
    Context.get(context, ApiKeys)
  )

const accepts = (replica: ApiKeys["Service"], key: Redacted.Redacted<string>) =>
  Effect.match(replica.verify(Redacted.value(key)), { onSuccess: () => true, onFailure: () => false })

/** Ends every connection of a replica to the database. */
const cutConnections = (url: string) =>
  statementsOn(
    url,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()`
  )

describe("spec 6.1: keys on several replicas", () => {
  it.live(
    "a creation or revocation takes effect on every replica, also when connections are lost meanwhile",
    () =>
      Effect.gen(function* () {
        const url = yield* newPostgresDatabase()
        const replicas = [yield* replicaAt(url), yield* replicaAt(url), yield* replicaAt(url)]
        const [one, other] = replicas
        assert.isDefined(one)
        assert.isDefined(other)
        const everywhere = (key: Redacted.Redacted<string>, expected: boolean) =>
          until(
            `the key is ${expected ? "valid" : "refused"} everywhere`,
            Effect.map(
              Effect.forEach(replicas, (replica) => accepts(replica, key)),
              (all) => all.every((accepted) => accepted === expected)
            )
          )
        for (let round = 0; round < 6; round++) {
          const { key, record } = yield* Effect.retry(one.create({ name: `k${round}`, scope: "AppAdmin" }), {
            times: 50
          })
          yield* everywhere(key, true)
          // In odd rounds the notification of the revocation is lost.
          if (round % 2 === 1) yield* cutConnections(url)
          yield* Effect.retry(other.revoke(record.id), {
            while: ({ _tag }) => _tag === "Unavailable",
            times: 50
          })
          yield* everywhere(key, false)
          // The key stays refused after another loss of connections.
          yield* cutConnections(url)
          for (let look = 0; look < 50; look++) {
            for (const replica of replicas) assert.isFalse(yield* accepts(replica, key))
            yield* Effect.sleep("2 millis")
          }
        }
      }).pipe(Effect.scoped, Effect.provideService(References.MinimumLogLevel, "Fatal"))
  )
})
