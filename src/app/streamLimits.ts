import { Effect, FileSystem } from "effect"
import type { ServiceSettings } from "../shared/config/service.ts"
import { LIMITS, openFilesIn } from "../shared/observability/openFiles.ts"

/** The limit of open files of this process; undefined: the system does not report it. */
const openFiles = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  return openFilesIn(yield* Effect.orElseSucceed(fs.readFileString(LIMITS), () => ""))
})

/** Returns the limits of streams. Each stream is an open file, and half of the open files stay for other uses. */
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
