/** Daemons as processes, beside a control plane. */

import { type ChildProcess, spawn } from "node:child_process"
import { createServer } from "node:net"
import { join, resolve } from "node:path"
import { Effect, type Scope } from "effect"
import { eventually } from "./eventually.ts"
import { makeKey } from "./keys.ts"
import { endLeftovers } from "./processes.ts"
import {
  ended,
  insideOf,
  limitedTo,
  listeningAt,
  type Service,
  type ServiceFailed,
  stopped
} from "./Service.ts"
import { expectStatus } from "./servers.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")

/** A control plane without an embedded node. */
export const alone = { MUSTER_EMBEDDED_NODE: "false", MUSTER_OVERCOMMIT_MEMORY: "1000" }

/** A port without a listener, for a service that must restart at the same address. */
export const freePort = Effect.callback<number>((resume) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const address = server.address()
    server.close(() =>
      resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0))
    )
  })
})

/** Creates a key with the scope `Node` in the database. */
export const nodeKey = (service: Pick<Service, "dataDir">, name = "node") =>
  makeKey(service.dataDir, name, "Node")

export interface NodeProcess {
  readonly id: string
  /** The URL of the daemon. */
  readonly url: string
  readonly dataDir: string
  readonly process: ChildProcess
  readonly output: () => string
  /** Sends a signal and waits until the process has exited. */
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
}

export interface NodeOptions {
  readonly control: string
  readonly key: string
  readonly id: string
  /** A folder that outlives this daemon, for tests that start it more than once. */
  readonly dataDir?: string
  readonly env?: Record<string, string>
  /** The name of its network namespace. */
  readonly namespace?: string
  /** Limit of open files. */
  readonly openFiles?: number
  /** The main module of another version. */
  readonly main?: string
}

/** Starts `muster node` on a free port and waits until it listens. Its processes end with the scope. */
export const startNode = (options: NodeOptions): Effect.Effect<NodeProcess, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const dataDir = options.dataDir ?? join(yield* temporaryFolder, options.id)
    if (options.dataDir === undefined) yield* Effect.addFinalizer(() => endLeftovers(dataDir))
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const main = options.main ?? join(root, "dist/main.js")
        const [program, ...args] = limitedTo(
          options.openFiles,
          insideOf(options.namespace, [process.execPath, main, "node"])
        )
        return spawn(program, args, {
          cwd: root,
          env: {
            PATH: process.env.PATH ?? "",
            HOME: process.env.HOME ?? "",
            MUSTER_CONTROL_URL: options.control,
            MUSTER_NODE_KEY: options.key,
            MUSTER_NODE_ID: options.id,
            MUSTER_NODE_NAME: options.id,
            MUSTER_NODE_PORT: "0",
            MUSTER_DATA_DIR: dataDir,
            ...options.env
          },
          stdio: ["ignore", "pipe", "pipe"]
        })
      }),
      stopped
    )
    let output = ""
    const collect = (chunk: Buffer) => {
      output += chunk.toString()
    }
    child.stdout?.on("data", collect)
    child.stderr?.on("data", collect)
    const url = yield* listeningAt(child, () => output)
    return {
      id: options.id,
      url,
      dataDir,
      process: child,
      output: () => output,
      kill: (signal) =>
        Effect.andThen(
          Effect.sync(() => child.kill(signal)),
          ended(child)
        )
    }
  })

/** Waits until the node is connected or not; an unknown node is not connected. */
export const nodeIs = (api: Pick<Service, "request">, id: string, connected: boolean) =>
  eventually(
    Effect.map(api.request("GET", `/api/nodes/${id}`), (answer) => answer.json?.connected ?? false),
    (now) => now === connected
  )

/** A registered node with its own key. */
export const connectedNode = Effect.fnUntraced(function* (
  api: Service,
  id: string,
  options: Partial<NodeOptions> = {}
) {
  const key = options.key ?? (yield* nodeKey(api, id)).key
  const node = yield* startNode({ control: api.url, ...options, key, id })
  yield* nodeIs(api, id, true)
  return { ...node, key }
})

/** Waits until a node has ended and removes it with its servers, so that the next test starts without them. */
export const forgetNode = Effect.fnUntraced(function* (api: Service, id: string) {
  const listed = yield* expectStatus(api, 200, "GET", "/api/servers")
  for (const server of listed.json) {
    if (server.node_id === id) yield* api.request("DELETE", `/api/servers/${server.id}?force=true`)
  }
  yield* nodeIs(api, id, false)
  yield* api.request("DELETE", `/api/nodes/${id}`)
})
