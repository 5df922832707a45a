import { Effect, Semaphore } from "effect"

/** Lets one call at a time through for each folder. */
export const makePerFolderLock = () => {
  const locks = new Map<string, Semaphore.Semaphore>()
  const alone =
    <R extends ReadonlyArray<unknown>, A, E>(use: (folder: string, ...rest: R) => Effect.Effect<A, E>) =>
    (folder: string, ...rest: R): Effect.Effect<A, E> =>
      Effect.suspend(() => {
        const lock = locks.get(folder) ?? Semaphore.makeUnsafe(1)
        locks.set(folder, lock)
        return lock.withPermit(use(folder, ...rest))
      })
  /** The folder has gone. */
  const forget = (folder: string) => {
    locks.delete(folder)
  }
  return { alone, forget }
}
