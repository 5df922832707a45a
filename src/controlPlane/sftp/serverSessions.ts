/** The sessions of files that a connection has open on nodes, one for each server that it uses. */
import { Deferred, Effect, Exit, Scope, Semaphore } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { FileError, FileSession, NodeFiles } from "../../contract/nodeApi/NodeFiles.ts"
import { ServerAccess } from "../http/Principal.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"

/** Servers of one connection whose files are open for random access; the rest opens again when it is used. */
const MOST_SESSIONS = 16
interface Opened {
  readonly session: FileSession
  readonly scope: Scope.Closeable
  openFiles: number
}

/** Opens sessions of servers until the connection ends. */
export const makeSessions = Effect.fnUntraced(function* (
  accessOf: (id: ServerId) => Effect.Effect<NodeFiles, FileError>
) {
  const index = yield* ServerIndex
  const access = yield* ServerAccess
  const connection = yield* Effect.scope
  const sessions = new Map<ServerId, Opened>()
  const ended = yield* Deferred.make<void>()
  const oneAtATime = yield* Semaphore.make(1)

  /** Returns once a server is deleted, migrates, is on another node, or is closed to the key. */
  const gone = Effect.fnUntraced(function* (id: ServerId) {
    const changed = yield* index.changeOf(id)
    const node_id = index.get(id)?.node_id
    while (true) {
      changed.closeUnsafe()
      const record = index.get(id)
      if (record === undefined || record.node_id !== node_id || index.migrationOf(id) !== undefined) return
      yield* changed.await
    }
  }, Effect.scoped)
  const over = (id: ServerId) => Effect.raceFirst(gone(id), access.ends(id))

  const drop = (id: ServerId) =>
    Effect.suspend(() => {
      const opened = sessions.get(id)
      sessions.delete(id)
      return opened === undefined ? Effect.void : Scope.close(opened.scope, Exit.void)
    })

  const makeRoom = Effect.suspend(() => {
    const idle = [...sessions].find(([, { openFiles }]) => openFiles === 0)
    return sessions.size < MOST_SESSIONS || idle === undefined ? Effect.void : drop(idle[0])
  })

  const opened = (id: ServerId): Effect.Effect<Opened, FileError> =>
    Effect.suspend(() => {
      const known = sessions.get(id)
      if (known !== undefined) return Effect.succeed(known)
      return Effect.gen(function* () {
        const other = sessions.get(id)
        if (other !== undefined) return other
        yield* makeRoom
        const files = yield* accessOf(id)
        const scope = yield* Scope.fork(connection)
        const session = yield* Scope.provide(files.session(id), scope).pipe(
          Effect.onError(() => Scope.close(scope, Exit.void))
        )
        const fresh: Opened = { session, scope, openFiles: 0 }
        sessions.set(id, fresh)
        // Not in the scope of the session, which this fiber closes.
        yield* Effect.raceFirst(Effect.ignore(session.ended), over(id)).pipe(
          Effect.andThen(sessions.get(id) === fresh ? drop(id) : Effect.void),
          Effect.andThen(Deferred.succeed(ended, undefined)),
          Effect.forkIn(connection)
        )
        return fresh
      }).pipe(oneAtATime.withPermit)
    })

  return { opened, over, ended: Deferred.await(ended) }
})
