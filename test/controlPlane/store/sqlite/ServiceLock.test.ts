import { writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Stream } from "effect"
import { layerSqlite } from "../../../../src/controlPlane/store/layers/layerDatabase.ts"
import { Store } from "../../../../src/controlPlane/store/Store.ts"
import { ServiceLock } from "../../../../src/controlPlane/store/sqlite/database.ts"
import { linesOf, runChild, startChild } from "../support/children.ts"
import { append, newDatabase } from "../support/database.ts"

const lockFile = Effect.map(newDatabase, (database) => database.replace(/\.db$/, ".lock"))
const take = (filename: string) => Effect.scoped(Layer.build(ServiceLock.layer({ filename })))

describe("design: one service on one data folder", () => {
  it.effect("a second service is refused until the first has ended", () =>
    Effect.gen(function* () {
      const filename = yield* lockFile
      const error = yield* Effect.provide(Effect.flip(take(filename)), ServiceLock.layer({ filename }))
      assert.strictEqual(error.reason, "InUse")
      assert.include(error.message, "another muster service runs on the same data")
      yield* take(filename)
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("an error names the database, not the file of its lock", () =>
    Effect.gen(function* () {
      const folder = dirname(yield* newDatabase)
      const database = join(folder, "none", "mine.db")
      const filename = join(folder, "none", "mine.lock")
      const error = yield* Effect.flip(Effect.scoped(Layer.build(ServiceLock.layer({ filename, database }))))
      assert.strictEqual(error.reason, "CannotOpen")
      assert.strictEqual(
        error.message,
        `cannot open the database ${database}: ENOENT: no such file or directory. Check that its folder exists and can be written`
      )
      assert.include(
        (yield* Effect.flip(take(filename))).message,
        `the data folder ${join(folder, "none")}: `
      )
      const strange = join(folder, "strange.lock")
      writeFileSync(
        strange,
        "not a lock file, and long enough to be looked at as the header of a database".repeat(9)
      )
      assert.include((yield* Effect.flip(take(strange))).message, `${strange} is not a lock file of muster`)
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.live("a killed service leaves no lock behind", () =>
    Effect.gen(function* () {
      const filename = yield* lockFile
      const child = yield* startChild("hold-lock.ts", filename)
      assert.deepStrictEqual(yield* Stream.runCollect(Stream.take(linesOf(child), 1)), ["held"])
      assert.strictEqual((yield* Effect.flip(take(filename))).reason, "InUse")
      yield* child.kill({ killSignal: "SIGKILL" })
      yield* take(filename)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("commands of another process write while the service runs", () =>
    Effect.gen(function* () {
      const filename = yield* newDatabase
      const service = layerSqlite({ filename }).pipe(
        Layer.provide(ServiceLock.layer({ filename: `${filename}.lock` }))
      )
      yield* Effect.gen(function* () {
        const store = yield* Store
        yield* store.write(append("a"))
        assert.strictEqual((yield* runChild("keys.ts", filename, "create")).length, 2)
        yield* store.write(append("b"))
      }).pipe(Effect.provide(service))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
