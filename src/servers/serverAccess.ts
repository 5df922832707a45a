import { Effect, Layer, Option } from "effect"
import { currentRestriction } from "../api/Principal.ts"
import { ServerAccess } from "../api/ServerAccess.ts"
import { NotFound } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { admits } from "../domain/KeyLimits.ts"
import { DeletedServerRepo } from "../store/repos/DeletedServerRepo.ts"
import { Store } from "../store/Store.ts"
import { inSlices } from "../work/slices.ts"
import { ServerIndex } from "./index/ServerIndex.ts"

export const ServerAccessLayer = Layer.effect(
  ServerAccess,
  Effect.gen(function* () {
    const deleted = yield* DeletedServerRepo
    const index = yield* ServerIndex
    const store = yield* Store

    const ends = Effect.fnUntraced(function* (id: ServerId) {
      const restriction = yield* currentRestriction
      if (restriction === undefined) return yield* Effect.never
      const changed = yield* index.changeOf(id)
      while (true) {
        changed.closeUnsafe()
        const record = index.get(id)
        if (record === undefined || !admits(restriction, record)) return
        yield* changed.await
      }
    }, Effect.scoped)

    return ServerAccess.of({
      mayRead: Effect.fnUntraced(function* (id) {
        const restriction = yield* currentRestriction
        if (restriction === undefined) return true
        return Option.isSome(yield* index.lookUpWithin(id, restriction))
      }),
      explained: Effect.fnUntraced(function* (text, error) {
        const restriction = yield* currentRestriction
        const found = yield* store
          .read(deleted.named(text))
          .pipe(
            Effect.catch(({ detail }) =>
              Effect.as(Effect.logDebug(`the end of a server was not read: ${detail}`), [])
            )
          )
        const end = found.find((server) => admits(restriction, server))
        return end === undefined ? error : NotFound.deletedServer(text, end)
      }),
      ends,
      countOn: Effect.fnUntraced(function* (node_id) {
        const restriction = yield* currentRestriction
        if (restriction === undefined) return undefined
        const records = yield* index.onNode(node_id)
        return yield* inSlices(function* () {
          let count = 0
          for (const record of records) {
            if (admits(restriction, record)) count += 1
            yield
          }
          return count
        })
      }),
      stuckOn: Effect.fnUntraced(function* (node_id) {
        const restriction = yield* currentRestriction
        return (yield* index.onNode(node_id)).flatMap((record) => {
          const isStuck = !record.definition.save && record.install.phase === "failed"
          return isStuck && (restriction === undefined || admits(restriction, record)) ? [record.id] : []
        })
      })
    })
  })
)
