import { Effect, FileSystem } from "effect"
import type { ServiceSettings } from "../config/service.ts"
import { LIMITS, openFilesIn } from "../http/openFiles.ts"

/** Files that this process may have open; undefined where the system does not say. */
const openFiles = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  return openFilesIn(yield* Effect.orElseSucceed(fs.readFileString(LIMITS), () => ""))
})

/** The limits of streams. Each stream is an open file: half of those that the process may have are left to the rest. */
export const streamLimits = Effect.fnUntraced(function* (settings: ServiceSettings) {
  const { streams: wanted, streamsPerKey: perKey } = settings
  const files = yield* openFiles
  const total = Math.min(wanted, Math.floor((files ?? Number.POSITIVE_INFINITY) / 2))
  if (total < wanted) {
    yield* Effect.logWarning(
      `${total} streams can be open, not ${wanted}: the process may open ${files} files. Raise the limit (LimitNOFILE, ulimit -n), or set MUSTER_STREAMS`
    )
  }
  return { perKey, total }
})
