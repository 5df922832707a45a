import { ADDRCONFIG, type LookupAddress, lookup as systemLookup } from "node:dns"

/** How long callers wait for the addresses of a name. */
const WAIT_MILLIS = 3000
/** How long a name that has no address now is not looked up again. */
const FAILED_MILLIS = 5000

type Done = (error: NodeJS.ErrnoException | null, found: ReadonlyArray<LookupAddress>) => void

interface Lookup {
  readonly waiting: Set<Done>
  failed: NodeJS.ErrnoException | undefined
}

/**
 * Looks names up, each name once at a time: all callers share the lookup. Each lookup of the system occupies one of the
 * few threads that files and the lookups of other names need too. A caller waits 3 s at most; until a slow lookup ends,
 * and for 5 s after a failed one, further callers fail at once.
 */
export const makeSharedLookup = (resolve: typeof systemLookup = systemLookup) => {
  const lookups = new Map<string, Lookup>()

  const begin = (name: string, done: Done) => {
    const lookup: Lookup = { waiting: new Set([done]), failed: undefined }
    lookups.set(name, lookup)
    const settle: Done = (error, found) => {
      lookup.failed = error ?? undefined
      const waiting = [...lookup.waiting]
      lookup.waiting.clear()
      for (const done of waiting) done(error, found)
    }
    const timer = setTimeout(() => {
      const message = `${name}: the name server did not answer within ${WAIT_MILLIS / 1000} s`
      settle(Object.assign(new Error(message), { code: "ETIMEDOUT" }), [])
    }, WAIT_MILLIS)
    resolve(name, { all: true, hints: ADDRCONFIG }, (error, found) => {
      clearTimeout(timer)
      if (error === null) lookups.delete(name)
      else setTimeout(() => lookups.delete(name), FAILED_MILLIS).unref()
      settle(error, found)
    })
  }

  return (name: string, done: Done): void => {
    const lookup = lookups.get(name)
    if (lookup === undefined) begin(name, done)
    else if (lookup.failed === undefined) lookup.waiting.add(done)
    else process.nextTick(done, lookup.failed, [])
  }
}
