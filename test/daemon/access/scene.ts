/** Servers with files, and callers of these files: in the process of the daemon, and over HTTP. */
import { createHash } from "node:crypto"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Stream } from "effect"
import type { ServerId } from "../../../src/contract/domain/Id.ts"
import type { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import type { Daemon } from "../../../src/contract/nodeApi/Daemon.ts"
import type { FileError, NodeFiles } from "../../../src/contract/nodeApi/NodeFiles.ts"
import type { NodeDaemonOptions } from "../../../src/daemon/NodeDaemon.ts"
import { remote, serve } from "../../controlPlane/nodes/support/remoteDaemon.ts"
import { write } from "../files/scene.ts"
import { type Harness, harness } from "../support.ts"

export const asRoot = process.getuid?.() === 0

export interface ScenePlace extends Partial<NodeDaemonOptions> {
  readonly far: boolean
}

type Places = Readonly<Record<string, ScenePlace>>

const overlay: Places = asRoot ? { "overlay, embedded": { far: false } } : {}
const copy = { instanceFiles: "copy" } as const

/** Each storage of servers on nodes, and each way to them. */
export const places: Places = { ...overlay, "plain folder, remote": { far: true, ...copy } }

/** Each storage by each way. */
export const everyPlace: Places = {
  ...places,
  ...(asRoot ? { "overlay, remote": { far: true } } : {}),
  "plain folder, embedded": { far: false, ...copy }
}

export const bytesOf = (text: string) => Stream.make(new TextEncoder().encode(text))

const base = `mkdir -p plugins world/region && echo base > plugins/a.yml && echo jar > server.jar && echo r > world/region/r0`

/** A node with an installed server, and its files as the control plane reaches them. */
export const filesOf = Effect.fnUntraced(function* (
  { far, ...options }: ScenePlace,
  definition: Partial<ServerDefinition> = {},
  given?: Harness
) {
  const node = given ?? (yield* harness(options))
  write(node.dataDir, { "volumes/shared/v.txt": "volume", "volumes/readonly/r.txt": "r" })
  const id = yield* node.installed({ install: { script: base }, definition })
  const daemon: Daemon = far
    ? yield* Effect.gen(function* () {
        const { url } = yield* serve(node.daemon)
        return yield* remote(() => ({ url, token: "secret" }))
      })
    : node.daemon
  const { files, backups } = daemon
  const folder = join(node.dataDir, "servers", id, "files")
  return { ...caller(files, id), backups, files, folder, id, node }
})

/** The calls of a test, with plain text as contents. */
export const caller = (files: NodeFiles, id: ServerId) => ({
  list: (
    path: string,
    more: { readonly after?: string; readonly limit?: number; readonly sizes?: boolean } = {}
  ) => files.list(id, { path, limit: 1000, sizes: false, ...more }),
  names: (path: string) =>
    Effect.map(files.list(id, { path, limit: 1000, sizes: false }), ({ entries }) =>
      entries.map(({ name }) => name)
    ),
  stat: (path: string) => files.stat(id, path),
  read: (
    path: string,
    more: { readonly start?: number; readonly end?: number; readonly etag?: string } = {}
  ) =>
    files.read(id, { path, ...more }).pipe(
      Effect.flatMap(Stream.runCollect),
      Effect.map((pieces) => Buffer.concat(pieces).toString()),
      Effect.scoped
    ),
  write: (path: string, text: string, more = {}) => files.write(id, { path, ...more }, bytesOf(text)),
  change: (...changes: Parameters<NodeFiles["change"]>[1]) => files.change(id, changes)
})

export const sha256 = (text: string | Buffer) => createHash("sha256").update(text).digest("base64")

/** Returns status and detail of a refusal. */
export const refusalOf = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.match(effect, {
    onSuccess: () => "no refusal",
    onFailure: (error) =>
      typeof error === "object" && error !== null && "status" in error && "detail" in error
        ? `${error.status} ${error.detail}`
        : String(error)
  })

export const put = (folder: string, name: string, text: string) => writeFileSync(join(folder, name), text)

/** Returns status codes of the outcomes of changes. */
export const statusesOf = (outcomes: ReadonlyArray<FileError | undefined> | "large") =>
  outcomes === "large"
    ? outcomes
    : outcomes.map((outcome) => (outcome === undefined ? 200 : "status" in outcome ? outcome.status : 503))
