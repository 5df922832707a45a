/** Backups of a server, as the control plane has them made. */
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { createWriteStream, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { zstdDecompressSync } from "node:zlib"
import { Effect, Stream } from "effect"
import {
  archiveOf,
  type BackupFigures,
  type BackupTask,
  type CreateTask,
  type RestoredPart
} from "../../../src/contract/domain/Backup.ts"
import type { TargetAccess } from "../../../src/contract/domain/BackupTarget.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import type { CompareRequest } from "../../../src/contract/nodeApi/NodeBackups.ts"
import { eventually } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import type { filesOf } from "../access/scene.ts"

/** The target that is the node itself. */
export const here: TargetAccess = { type: "node" }

export const newId = () => serverId(idBytes(16))

/** A backup as the control plane knows it. */
export const storedOf = (id: string, figures: BackupFigures | undefined, target: TargetAccess = here) => ({
  id,
  target,
  archive: archiveOf({ figures: figures ?? null })
})

type Scene = Effect.Success<ReturnType<typeof filesOf>>

export const createOf = (backup_id: string): CreateTask => ({
  kind: "create",
  backup_id,
  contents: "full",
  server: { server_name: "one", blueprint_id: "test", labels: { team: "a" }, overrides: {} }
})

/** Runs a task to its end. */
export const worked = Effect.fnUntraced(function* (
  { backups, id }: Pick<Scene, "backups" | "id">,
  task: BackupTask,
  operation_id: string = newId(),
  target: TargetAccess = here
) {
  return yield* eventually(
    backups.work(id, { operation_id, task, target }),
    ({ state }) => state !== "running"
  )
})

export const made = Effect.fnUntraced(function* (
  scene: Scene,
  backup_id = newId(),
  target: TargetAccess = here
) {
  const end = yield* worked(scene, createOf(backup_id), newId(), target)
  return { ...end, backup_id }
})

/** Compares the files of a server with a backup, as the dry run of a restore does. */
export const compared = (
  { backups, id }: Pick<Scene, "backups" | "id">,
  { backup_id, figures }: Pick<Effect.Success<ReturnType<typeof made>>, "backup_id" | "figures">,
  request: CompareRequest = {}
) =>
  Effect.scoped(
    Effect.flatMap(backups.index(storedOf(backup_id, figures)), (index) =>
      backups.compare(id, request, index)
    )
  )

/** Reads the archive of a backup, as a download does. */
export const readOf = (
  { backups }: Pick<Scene, "backups">,
  backup_id: string,
  figures?: BackupFigures,
  target: TargetAccess = here
) => Effect.scoped(Effect.flatMap(backups.archive(storedOf(backup_id, figures, target)), Stream.runDrain))

export const folderOf = ({ node }: Scene, backup_id: string) => join(node.dataDir, "backups", backup_id)

export const manifestOf = (scene: Scene, backup_id: string) =>
  JSON.parse(JSON.parse(readFileSync(join(folderOf(scene, backup_id), "manifest.json"), "utf8")).manifest)

/** The entries of the index of a backup, by path. */
export const indexOf = (scene: Scene, backup_id: string): ReadonlyMap<string, Record<string, unknown>> => {
  const bytes = readFileSync(join(folderOf(scene, backup_id), "index-00001"))
  const lines = zstdDecompressSync(bytes).toString().trimEnd().split("\n")
  return new Map(
    lines.map((line) => {
      const entry = JSON.parse(line)
      return [entry.path, entry]
    })
  )
}

/** Downloads a backup and unpacks it with `tar`; returns the folder and the SHA-256 of the archive. */
export const downloaded = Effect.fnUntraced(function* (
  { backups }: Pick<Scene, "backups">,
  backup_id: string,
  figures: BackupFigures | undefined,
  target: TargetAccess = here
) {
  const folder = yield* temporaryFolder
  const path = join(folder, "backup.tar.zst")
  const hash = createHash("sha256")
  const file = createWriteStream(path)
  yield* Effect.scoped(
    Effect.flatMap(backups.archive(storedOf(backup_id, figures, target)), (bytes) =>
      Stream.runForEach(bytes, (chunk) =>
        Effect.sync(() => {
          hash.update(chunk)
          file.write(chunk)
        })
      )
    )
  )
  yield* Effect.callback<void>((resume) => void file.end(() => resume(Effect.void)))
  const to = join(folder, "unpacked")
  mkdirSync(to)
  execFileSync("tar", ["--zstd", "-xf", path, "-C", to])
  return { to, sha256: hash.digest("hex") }
})

export const objectsOf = ({ node }: Scene) => {
  const root = join(node.dataDir, "backups")
  return existsSync(root) ? readdirSync(root, { recursive: true, encoding: "utf8" }).toSorted() : []
}

export const verifyOf = (backup_id: string, figures: BackupFigures | undefined): BackupTask => ({
  kind: "verify",
  backup_id,
  archive: archiveOf({ figures: figures ?? null })
})

/** The restore of a backup; `arrives`: from another node. */
export const restoreOf = (
  backup_id: string,
  figures: BackupFigures | undefined,
  arrives = false,
  part?: RestoredPart
): BackupTask => ({
  kind: "restore",
  backup_id,
  archive: archiveOf({ figures: figures ?? null }),
  arrives,
  ...(part === undefined ? {} : { part })
})
