/** A data folder with a base, volumes and an allowed mount, and instances made from them. */

import { spawnSync } from "node:child_process"
import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Context, Effect, Layer, Scope } from "effect"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import type { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import { InstanceFiles, type InstanceFilesOptions } from "../../../src/daemon/files/InstanceFiles.ts"
import { generationsDir } from "../../../src/daemon/files/treeRecord.ts"
import type { RunUser } from "../../../src/daemon/runtime/Runtime.ts"
import { unmountBelow } from "../../support/mounts.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { newId, specOf } from "../support.ts"

/** Every storage strategy of a node. */
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

export const text = (...path: ReadonlyArray<string>) => readFileSync(join(...path), "utf8")

export const scene = Effect.fnUntraced(function* (
  options: Partial<InstanceFilesOptions> = {},
  given: string | undefined = undefined,
  allowedMounts: ReadonlyArray<string> | undefined = undefined
) {
  const dataDir = given ?? (yield* temporaryFolder)
  const [baseDir, serversDir] = [join(dataDir, "base"), join(dataDir, "servers")]
  const allowed = join(dataDir, "host")
  const volumes = join(dataDir, "volumes")
  const sources = {
    node_id: NodeId.make("test-node"),
    dataDir,
    volumesDir: volumes,
    allowedMounts: allowedMounts ?? [allowed]
  }
  write(allowed, { "maps/m": "m" })
  const base = (generation: string, files: Readonly<Record<string, string>>) => {
    const folder = join(generationsDir(baseDir), generation)
    mkdirSync(folder, { recursive: true })
    write(folder, files)
    return { folder, generation }
  }
  const first = base("first", { "server.jar": "jar", "world/default": "d" })
  /** The daemon's service for instance files; opening another one simulates a restart. */
  const open = Effect.gen(function* () {
    const scope = yield* Scope.fork(yield* Effect.scope)
    const layer = InstanceFiles.layer({ baseDir, serversDir, sources, ...options })
    return Context.get(yield* Layer.buildWithScope(Layer.fresh(layer), scope), InstanceFiles)
  })
  const files = yield* open
  const server = (
    definition: Partial<ServerDefinition>,
    folder = join(serversDir, newId()),
    user: RunUser | undefined = undefined
  ) => {
    const spec = specOf({ definition })
    return {
      folder,
      files: join(folder, "files"),
      spec,
      make: files.make(folder, first, spec, user),
      open: files.open(folder, spec, "process", user),
      reclaim: files.reclaim(folder, user),
      close: files.close(folder),
      renew: (next: ReturnType<typeof base>) => files.renew(folder, next, spec, user),
      usage: files.usage(folder, spec)
    }
  }
  return { dataDir, baseDir, serversDir, allowed, volumes, base, first, server, service: files, open }
})

const mounted = (folder: string, argv: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    mkdirSync(folder)
    const { status, stderr } = spawnSync("mount", [...argv, folder])
    if (status !== 0) return yield* Effect.die(new Error(`mount ${argv.join(" ")}: ${stderr}`))
    yield* Effect.addFinalizer(() => Effect.sync(() => unmountBelow(folder)))
    return folder
  })

/** A data folder on a file system of `mib` MiB without reflinks. */
export const smallDisk = Effect.fnUntraced(function* (mib: number, files = 100_000) {
  const options = `size=${mib}m,nr_inodes=${files}`
  return yield* mounted(join(yield* temporaryFolder, "small"), ["-t", "tmpfs", "-o", options, "tmpfs"])
})

/** Fills a small disk except for the ends of last blocks. */
export const fillDisk = (disk: string) => {
  const ballast = join(disk, "ballast")
  spawnSync("dd", ["if=/dev/zero", `of=${ballast}`, "bs=4k"])
  return { free: () => rmSync(ballast) }
}

/** Creates files on a small disk until it is out of inodes. */
export const fillWithFiles = (disk: string) => {
  const ballast = join(disk, "files")
  mkdirSync(ballast)
  spawnSync("sh", ["-c", "while : > $((i += 1)); do :; done"], { cwd: ballast })
  return { free: () => rmSync(ballast, { recursive: true }) }
}

/** A uid of one server only. */
export const ownUser = (uid: number): RunUser => ({ uid, gid: uid, own: true })

/** Runs a script as a user without capabilities in a folder; returns stdout and stderr. */
export const runAs = (uid: number, cwd: string, script: string): string => {
  const rights = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
  // Enters the folder before it changes the user, who cannot search the folders above.
  const words = [`--reuid=${uid}`, `--regid=${uid}`, ...rights, "sh", "-c", `{ ${script}; } 2>&1`]
  return spawnSync("setpriv", words, { cwd, encoding: "utf8" }).stdout
}

/** Whether tests can have a file system of their own that a program makes: needs root and a loop device. */
const withImages = (program: string) =>
  process.getuid?.() === 0 &&
  spawnSync(program, ["-V"]).status === 0 &&
  spawnSync("losetup", ["--find"]).status === 0

export const [withBtrfs, withExt4, withXfs] = [
  // Many kernels lack it.
  withImages("mkfs.btrfs") && /\tbtrfs$/m.test(text("/proc/filesystems")),
  withImages("mkfs.ext4"),
  withImages("mkfs.xfs")
]

const imageDisk = Effect.fnUntraced(function* (
  mountOptions: string,
  program: string,
  ...options: ReadonlyArray<string>
) {
  const folder = yield* temporaryFolder
  const image = join(folder, "image")
  writeFileSync(image, "")
  truncateSync(image, 512 * 1024 * 1024)
  const made = spawnSync(program, [...options, image])
  if (made.status !== 0) return yield* Effect.die(new Error(`${program}: ${made.stderr}`))
  return yield* mounted(join(folder, "disk"), ["-o", mountOptions, image])
})

/** A data folder on ext4. */
export const ext4Disk = imageDisk("loop", "mkfs.ext4", "-q")

/** A data folder on a file system with reflinks. */
export const xfsDisk = imageDisk("loop", "mkfs.xfs", "-q", "-m", "reflink=1")

export const btrfsDisk = imageDisk("loop", "mkfs.btrfs", "-q")

const quotaImage = (...argv: readonly [string, ...ReadonlyArray<string>]) =>
  imageDisk("loop,prjquota", ...argv)

/** Data folders whose file system has project quotas; mounting fails if the kernel has none. */
export const quotaDisks = {
  ext4: quotaImage("mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"),
  xfs: quotaImage("mkfs.xfs", "-q")
}
