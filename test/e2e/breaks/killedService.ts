/** A service whose process is killed by tests. */
import { closeSync, openSync, writeSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { chaosDefinitions } from "../../support/chaos.ts"
import { definitions } from "../../support/definitions.ts"
import { makeRestartingService } from "../../support/faults/index.ts"
import { endLeftovers } from "../../support/processes.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

export const range = { address: "127.0.0.1", first: 30_000, last: 30_449 }

/** A service that restarts on its data folder; its server processes end with the scope. */
export const restartingService = Effect.gen(function* () {
  const folders = yield* definitions(chaosDefinitions)
  const dataDir = join(yield* temporaryFolder, "data")
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  const env = {
    ...folders.env,
    MUSTER_OVERCOMMIT_MEMORY: "1000",
    MUSTER_EMBEDDED_ALLOCATIONS: `${range.address}:${range.first}-${range.last}`
  }
  return { dataDir, restarting: yield* makeRestartingService({ dataDir, env }) }
})

/** Writes a line to the console of a server while no service runs. */
export const writeToConsole = (dataDir: string, id: string, line: string) =>
  Effect.sync(() => {
    const input = openSync(join(dataDir, "node", "servers", id, "console.in"), "w")
    writeSync(input, `${line}\n`)
    closeSync(input)
  })
