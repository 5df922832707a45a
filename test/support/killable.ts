/** A service with its daemon that tests kill and start again. */
import { join } from "node:path"
import { Effect, Exit, Scope } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "./definitions.ts"
import { endLeftovers } from "./processes.ts"
import { startService } from "./Service.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** A data folder, and starts of its service, which can be killed and started again. */
export const killableOf = Effect.fnUntraced(function* (given: Parameters<typeof definitions>[0]) {
  const { env } = yield* definitions(given)
  const dataDir = join(yield* temporaryFolder, "data")
  yield* Effect.addFinalizer(() => endLeftovers(dataDir))
  const scope = yield* Effect.scope
  const start = Effect.gen(function* () {
    const own = yield* Scope.fork(scope)
    const service = yield* Scope.provide(startService({ dataDir, env }), own)
    const kill = Effect.andThen(service.kill("SIGKILL"), Scope.close(own, Exit.void))
    return { ...service, kill }
  })
  return { dataDir, start }
})

export const killable = killableOf(files)
