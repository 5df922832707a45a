import { randomUUID } from "node:crypto"
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Context, Effect, Exit, Layer, References, Scope } from "effect"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import {
  DockerRuntime,
  type DockerRuntimeOptions
} from "../../../../src/daemon/runtime/docker/DockerRuntime.ts"
import { type Launch, Runtime } from "../../../../src/daemon/runtime/Runtime.ts"
import { TEST_IMAGE, TestEngine } from "../../../support/dockerEngine.ts"
import { temporaryFolderIn } from "../../../support/temporaryFolder.ts"
import { newId } from "../../support.ts"

/** A unique node per test, so that containers of a failed test disturb no other. */
export const newNode = (): NodeId => NodeId.make(`test-${randomUUID()}`)

/** A folder that containers can read although they run as another user. */
export const folder = temporaryFolderIn(tmpdir(), 0o755)

/** Removes all containers and networks of a node with the scope: an engine of the machine outlives the tests. */
export const cleanNode = (node: string) =>
  Effect.gen(function* () {
    const { docker } = yield* TestEngine
    const filters = { label: [`muster.node=${node}`] }
    const remove = (all: ReadonlyArray<() => Promise<unknown>>) =>
      Effect.forEach(all, (one) => Effect.ignore(Effect.tryPromise(one)))
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        const containers = yield* Effect.promise(() => docker.listContainers({ all: true, filters }))
        yield* remove(
          containers.map(
            ({ Id }) =>
              () =>
                docker.getContainer(Id).remove({ force: true })
          )
        )
        const networks = yield* Effect.promise(() => docker.listNetworks({ filters }))
        yield* remove(
          networks.map(
            ({ Id }) =>
              () =>
                docker.getNetwork(Id).remove()
          )
        )
      })
    )
  })

/** Opens the runtime of a node until its scope ends or `close` is called. */
export const openRuntime = Effect.fnUntraced(function* (
  node: string,
  options: Partial<DockerRuntimeOptions> = {}
) {
  const { socket } = yield* TestEngine
  const scope = yield* Scope.fork(yield* Effect.scope)
  const context = yield* Layer.buildWithScope(
    Layer.fresh(DockerRuntime.layer({ node, socket, pull: "never", ...options })),
    scope
  ).pipe(
    Effect.provideService(References.MinimumLogLevel, process.env.SHOW_LOG === undefined ? "None" : "All")
  )
  return { runtime: Context.get(context, Runtime), close: Scope.close(scope, Exit.void) }
})

/** A runtime on its own node, with functions that start servers. */
export const bench = Effect.fnUntraced(function* (options: Partial<DockerRuntimeOptions> = {}) {
  const node = newNode()
  yield* cleanNode(node)
  const { runtime, close } = yield* openRuntime(node, options)
  const launchOf = Effect.fnUntraced(function* (script: string, more: Partial<Launch> = {}) {
    const root = yield* folder
    const cwd = join(root, "files")
    mkdirSync(cwd)
    const launch: Launch = {
      server_id: newId(),
      token: randomUUID(),
      folder: root,
      cwd,
      argv: ["sh", "-c", script],
      env: {},
      limits: {},
      image: TEST_IMAGE,
      ...more
    }
    return launch
  })
  const start = Effect.fnUntraced(function* (script: string, more: Partial<Launch> = {}) {
    const launch = yield* launchOf(script, more)
    return { launch, run: yield* runtime.start(launch) }
  })
  return { node, runtime, close, launchOf, start }
})

export const consoleOf = (at: { readonly folder: string }): string => {
  try {
    return readFileSync(join(at.folder, "console.log"), "utf8")
  } catch {
    return ""
  }
}

/** Returns the output of a script in a container, with its exit. */
export const outputOf = Effect.fnUntraced(function* (script: string, more: Partial<Launch> = {}) {
  const { start } = yield* bench()
  const { launch, run } = yield* start(script, more)
  const exit = yield* run.ended
  return { exit, text: consoleOf(launch) }
})

export const put = (path: string, text: string) => Effect.sync(() => writeFileSync(path, text))
