/** The requests that send bytes of uploads: one at a time for each upload (spec 10.8). */
import { Clock, Deferred, Effect, Stream } from "effect"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { UploadRefused } from "../../contract/nodeApi/NodeUploadsApi.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"

/** Time without a byte after which another request takes the place of one, in ms: its connection may be dead. */
const PATIENCE = 2000

interface Writer {
  readonly cut: Deferred.Deferred<never, FileRefused>
  readonly ended: Deferred.Deferred<void>
  /** Since when it waits for bytes; unset while it has some. */
  waiting: number | undefined
}

const locked = new UploadRefused({
  status: 423,
  detail: "another request sends the bytes of this upload",
  hint: "Wait until it has ended, then ask for the offset and continue there."
})

const replaced = new FileRefused({
  status: 409,
  detail: "another request continues this upload",
  hint: "Ask for the offset with HEAD, and continue there."
})

export const makeUploadWriters = () => {
  const writers = new Map<string, Writer>()

  /** Ends the request that sends bytes, and returns once it writes no more. */
  const cut = ({ cut, ended }: Writer) => Effect.andThen(Deferred.fail(cut, replaced), Deferred.await(ended))

  const enter = (key: string): Effect.Effect<Writer, UploadRefused> =>
    Effect.suspend(() => {
      if (writers.has(key)) return Effect.fail(locked)
      const writer: Writer = {
        cut: Deferred.makeUnsafe(),
        ended: Deferred.makeUnsafe(),
        waiting: undefined
      }
      writers.set(key, writer)
      return Effect.succeed(writer)
    })

  const leave = (key: string, { ended }: Writer) =>
    Effect.suspend(() => {
      writers.delete(key)
      return Deferred.succeed(ended, undefined)
    })

  return {
    /** Ends the request that sends bytes, if there is one. */
    end: (key: string) =>
      Effect.suspend(() => {
        const writer = writers.get(key)
        return writer === undefined ? Effect.void : cut(writer)
      }),
    /**
     * Runs the request that sends bytes, unless another one does.
     * @error UploadRefused 423 another request sends bytes
     * @error FileRefused   409 another one has taken its place
     */
    alone: <A, E, E2, R>(
      key: string,
      bytes: Stream.Stream<Uint8Array, E>,
      run: (bytes: Stream.Stream<Uint8Array, E>) => Effect.Effect<A, E2, R>
    ): Effect.Effect<A, E2 | FileRefused | UploadRefused, R> =>
      Effect.gen(function* () {
        const clock = yield* Clock.Clock
        const now = () => elapsedMillisOf(clock)
        const other = writers.get(key)
        if (other?.waiting !== undefined && now() - other.waiting >= PATIENCE) yield* cut(other)
        return yield* Effect.acquireUseRelease(
          enter(key),
          (writer) => {
            const watched = Stream.transformPull(bytes, (pull) =>
              Effect.succeed(
                Effect.suspend(() => {
                  writer.waiting = now()
                  return Effect.ensuring(
                    pull,
                    Effect.sync(() => {
                      writer.waiting = undefined
                    })
                  )
                })
              )
            )
            return Effect.raceFirst(run(watched), Deferred.await(writer.cut))
          },
          (writer) => leave(key, writer)
        )
      })
  }
}
