/** A service that syncs definitions from a repository. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { makeRepository } from "../controlPlane/blueprints/sources/support.ts"
import { noNode } from "../controlPlane/http/support/http.ts"
import { blueprintFile, definitions, softwareFile } from "./definitions.ts"
import type { startService } from "./Service.ts"
import { expectStatus } from "./servers.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

/** Folders, a repository, and the settings of a service that syncs it. */
export const sourceSetup = Effect.gen(function* () {
  const root = yield* temporaryFolder
  const folders = yield* definitions({
    blueprints: { "own.yml": blueprintFile("own", "game") },
    software: { "game.yml": softwareFile("game") }
  })
  const repository = makeRepository(join(root, "repository"))
  const list = (...sources: ReadonlyArray<Readonly<Record<string, unknown>>>) =>
    writeFileSync(join(root, "sources.yml"), JSON.stringify({ sources }))
  const env = { ...noNode, ...folders.env, MUSTER_BLUEPRINT_SOURCES: join(root, "sources.yml") }
  return { root, folders, repository, list, env, dataDir: join(root, "data") }
})

export const idsOf = (api: Effect.Success<ReturnType<typeof startService>>) =>
  Effect.map(
    expectStatus(api, 200, "GET", "/api/blueprints?limit=1000"),
    ({ json }): ReadonlyArray<string> =>
      json.data.map((it: { readonly metadata: { readonly id: string } }) => it.metadata.id)
  )
