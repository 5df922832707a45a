import { randomUUID } from "node:crypto"
import { statSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join, resolve } from "node:path"
import { Effect, FileSystem, Option } from "effect"
import type { NodeAllocation } from "../contract/domain/Allocation.ts"
import { NodeId } from "../contract/domain/Id.ts"
import { claimDataFolder } from "../daemon/host/dataFolder.ts"
import type { NodeDaemonOptions } from "../daemon/NodeDaemon.ts"
import type { docker, hosting } from "../shared/config/common.ts"
import { StartError } from "../shared/config/StartError.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import { version } from "./version.ts"

const form = /^[A-Za-z0-9._-]{1,64}$/

/** Returns the id of this host's node. The first start makes it and writes it to `<data>/node.id`. */
const nodeIdentity = Effect.fn("nodeIdentity")(
  function* (dataDir: string) {
    const fs = yield* FileSystem.FileSystem
    const file = join(dataDir, "node.id")
    const kept = (yield* fs.exists(file)) ? (yield* fs.readFileString(file)).trim() : ""
    if (form.test(kept)) return kept
    const made = `node-${randomUUID().slice(0, 8)}`
    yield* fs.writeFileString(`${file}.new`, `${made}\n`, { mode: 0o600 })
    yield* fs.rename(`${file}.new`, file)
    return made
  },
  (effect, dataDir) =>
    Effect.catch(effect, (error) =>
      Effect.fail(
        new StartError({ message: `the id of this node cannot be kept in ${dataDir}: ${error.message}` })
      )
    )
)

type DaemonSettings = Pick<ServiceSettings, keyof typeof docker | keyof typeof hosting | "tlsKey">

const MIB = 1024 * 1024

const nodeFolder = (dataDir: string) => join(dataDir, "node")

/** Claims the folder of a node for the scope before anything is written to it. An empty `id` takes the stored one. */
export const claimNode = Effect.fnUntraced(function* (dataDir: string, id = "") {
  yield* claimDataFolder(nodeFolder(dataDir))
  return NodeId.make(id === "" ? yield* nodeIdentity(dataDir) : id)
})

/** A missing folder may be a mistake, or a mount that comes later. */
const warnOfMissing = Effect.fnUntraced(function* (folder: string) {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return
  yield* Effect.logWarning(
    `MUSTER_ALLOWED_MOUNTS: there is no folder ${folder}; servers that mount from it cannot be installed until there is`
  )
})

const dockerConfigPath = (set: string): string =>
  set === "" ? join(homedir(), ".docker", "config.json") : resolve(set)

const dockerOptions = (runtime: ServiceSettings["embeddedRuntime"], settings: DaemonSettings) =>
  runtime === "process"
    ? {}
    : {
        docker: {
          socket: resolve(settings.dockerSocket),
          pull: settings.dockerPull,
          config: dockerConfigPath(settings.dockerConfig),
          optional: runtime === "auto"
        }
      }

/** Files and folders with keys, or with the rights of the daemon. */
const hiddenFiles = (
  { backupFolders, dockerConfig, dockerSocket, tlsKey }: DaemonSettings,
  { closed = [], dataDir }: { readonly dataDir: string; readonly closed?: ReadonlyArray<string> }
) => {
  // The variables also cover secrets whose value was read elsewhere.
  const secrets = Object.entries(process.env).flatMap(([name, value = ""]) =>
    /^(MUSTER_|APP_ADMIN_API_KEY).*_FILE$/.test(name) ? [value] : []
  )
  const files = [...secrets, tlsKey, ...closed].filter((path) => path !== "").map((path) => resolve(path))
  const own = [...backupFolders, ...ownFolders()]
  return [resolve(dataDir), resolve(dockerSocket), dockerConfigPath(dockerConfig), ...files, ...own]
}

/** A user without an entry in the user database and without `HOME` has no home. */
const homeOf = () => Option.getOrElse(Option.liftThrowable(homedir)(), () => "/")

/** Folders of this program that servers of an ordinary user could write. Under root, servers have other users. */
const ownFolders = () =>
  process.geteuid?.() === 0
    ? []
    : [homeOf(), resolve(import.meta.dirname, "../..")].filter((path) => isAbsolute(path) && path !== "/")

export const daemonOptions = Effect.fnUntraced(function* (
  settings: DaemonSettings,
  own: {
    readonly dataDir: string
    readonly runtime: ServiceSettings["embeddedRuntime"]
    readonly allocations: ReadonlyArray<NodeAllocation>
    /** Files and folders of this program that are hidden from servers. */
    readonly closed?: ReadonlyArray<string>
  }
) {
  const allowedMounts = settings.allowedMounts.map((folder) => resolve(folder))
  yield* Effect.forEach(allowedMounts, warnOfMissing, { discard: true })
  return {
    version,
    dataDir: nodeFolder(own.dataDir),
    allocations: own.allocations.map((allocation) => ({
      ...allocation,
      force_outgoing_ip: settings.forceOutgoingIp
    })),
    allowedMounts,
    backupFolders: settings.backupFolders,
    backupRate: settings.backupRate,
    instanceFiles: settings.instanceFiles,
    diskCheckSeconds: settings.diskCheck,
    diskReserve: settings.diskReserve * MIB,
    startParallel: settings.startParallel,
    environment: process.env,
    passEnv: settings.passEnv,
    isolation: {
      mode: settings.processIsolation,
      uids: settings.processUids,
      tasks: settings.processTasks,
      hidden: hiddenFiles(settings, own)
    },
    ...dockerOptions(own.runtime, settings)
  } satisfies Partial<NodeDaemonOptions>
})
