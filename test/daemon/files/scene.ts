/** A data folder with a base, volumes and a folder to mount from, and instances made of them. */
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Context, Effect, Layer, Scope } from "effect"
import { InstanceFiles, type InstanceFilesOptions } from "../../../src/daemon/files/InstanceFiles.ts"
import { generationsDir } from "../../../src/daemon/files/treeRecord.ts"
import type { ServerDefinition } from "../../../src/domain/ServerDefinition.ts"
import { dataFolder, newId, specOf } from "../support.ts"

/** Every way in which a node may make instances. */
export const ways = {
  overlay: {},
  "copy, with mounts": { storage: "copy" },
  "copy, without mounts": { mounts: false }
} as const satisfies Record<string, Partial<InstanceFilesOptions>>

export const write = (root: string, files: Readonly<Record<string, string>>) => {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true })
    writeFileSync(join(root, name), text)
  }
}

export const scene = Effect.fnUntraced(function* (
  options: Partial<InstanceFilesOptions> = {},
  given: string | undefined = undefined
) {
  const data_dir = given ?? (yield* dataFolder)
  const [base_dir, servers_dir] = [join(data_dir, "base"), join(data_dir, "servers")]
  const allowed = join(data_dir, "host")
  const volumes = join(data_dir, "volumes")
  const sources = { data_dir, volumes_dir: volumes, allowed_mounts: [allowed] }
  write(allowed, { "maps/m": "m" })
  const base = (generation: string, files: Readonly<Record<string, string>>) => {
    const folder = join(generationsDir(base_dir), generation)
    mkdirSync(folder, { recursive: true })
    write(folder, files)
    return { folder, generation }
  }
  const first = base("first", { "server.jar": "jar", "world/default": "d" })
  /** The service of a daemon; a further one is another start. */
  const open = Effect.gen(function* () {
    const scope = yield* Scope.fork(yield* Effect.scope)
    const layer = InstanceFiles.layer({ base_dir, servers_dir, sources, ...options })
    return Context.get(yield* Layer.buildWithScope(Layer.fresh(layer), scope), InstanceFiles)
  })
  const files = yield* open
  const server = (definition: Partial<ServerDefinition>, folder = join(servers_dir, newId())) => {
    const spec = specOf({ definition })
    return {
      folder,
      files: join(folder, "files"),
      spec,
      make: files.make(folder, first, spec),
      open: files.open(folder, spec, "process"),
      close: files.close(folder),
      renew: (next: ReturnType<typeof base>) => files.renew(folder, next, spec),
      usage: files.usage(folder, spec)
    }
  }
  return { data_dir, base_dir, servers_dir, allowed, volumes, base, first, server, service: files, open }
})
