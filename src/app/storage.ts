import { mkdirSync, statSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Effect, Layer } from "effect"
import { makeRoomToStart, reserveFileOf } from "../controlPlane/store/disk/reserve.ts"
import { layerDatabase } from "../controlPlane/store/layers/layerDatabase.ts"
import type { StoreStartError } from "../controlPlane/store/sql/sqlErrors.ts"
import { lockFileOf, ServiceLock } from "../controlPlane/store/sqlite/ServiceLock.ts"
import type { DatabaseUrl } from "../shared/config/DatabaseUrl.ts"
import { StartError } from "../shared/config/StartError.ts"
import type { ServiceSettings } from "../shared/config/service.ts"

/** Makes one folder after the other: `recursive` loops if a file system refuses with ENOENT, as /proc does. */
const makeFolders = (folder: string): void => {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return
  makeFolders(dirname(folder))
  mkdirSync(folder, { mode: 0o700 })
}

/** Makes the data folder if it is missing, with mode 0700; returns its absolute path. */
export const openDataDir = (settings: Pick<ServiceSettings, "dataDir">) =>
  Effect.try({
    try: () => {
      const folder = resolve(settings.dataDir)
      makeFolders(folder)
      return folder
    },
    catch: (cause) =>
      new StartError({
        message: `the data folder ${settings.dataDir} cannot be made (${cause instanceof Error ? cause.message : cause}); set MUSTER_DATA_DIR`
      })
  })

type DatabaseSettings = Pick<
  ServiceSettings,
  | "auditKeep"
  | "auditKeepMib"
  | "databaseUrl"
  | "databasePool"
  | "databaseTimeout"
  | "eventsKeepHours"
  | "eventsKeepCount"
>

/** Returns the database of the settings; files by their absolute path. */
export const databaseOf = (
  { databaseUrl }: Pick<ServiceSettings, "databaseUrl">,
  dataDir: string
): DatabaseUrl => {
  switch (databaseUrl._tag) {
    case "DataFolder":
      return { _tag: "Sqlite", filename: join(dataDir, "muster.db") }
    case "Sqlite":
      return { _tag: "Sqlite", filename: resolve(databaseUrl.filename) }
    case "Postgres":
      return databaseUrl
  }
}

export const hasEmbeddedNode = ({
  databaseUrl,
  embeddedNode
}: Pick<ServiceSettings, "databaseUrl" | "embeddedNode">): boolean =>
  embeddedNode === "auto" ? databaseUrl._tag !== "Postgres" : embeddedNode

export const StoreLayer = (
  settings: DatabaseSettings,
  dataDir: string,
  options: { readonly isService?: boolean } = {}
) =>
  layerDatabase(databaseOf(settings, dataDir), {
    retention: {
      maxAge: `${settings.eventsKeepHours} hours`,
      maxEntries: settings.eventsKeepCount,
      auditAge: `${settings.auditKeep} days`,
      auditBytes: settings.auditKeepMib * 2 ** 20
    },
    poolSize: settings.databasePool,
    answerMillis: settings.databaseTimeout,
    ...options
  })

/** Releases the reserve of a database file whose disk is full, so that the service can open its files. */
export const makeRoom = Effect.fnUntraced(function* (
  settings: Pick<ServiceSettings, "databaseUrl">,
  dataDir: string
) {
  const database = databaseOf(settings, dataDir)
  if (database._tag !== "Sqlite") return
  const { filename } = database
  yield* Effect.catch(makeRoomToStart(reserveFileOf(filename), dirname(filename)), (error) =>
    Effect.logDebug(`the disk of the database cannot be looked at: ${error.message}`)
  )
})

export const AS_THE_SERVICE = ": set MUSTER_DATA_DIR or MUSTER_DATABASE_URL as the service has it"

/** Locks the files of a service. Services may share a PostgreSQL database, but no data folder with a node. */
export const ServiceLocks = (
  settings: Pick<ServiceSettings, "databaseUrl" | "embeddedNode">,
  dataDir: string
): Layer.Layer<never, StoreStartError> => {
  const database = databaseOf(settings, dataDir)
  const folder = ServiceLock.layer({ filename: join(dataDir, "muster.lock") })
  if (database._tag === "Postgres") return hasEmbeddedNode(settings) ? folder : Layer.empty
  const { filename } = database
  const file = lockFileOf(filename)
  const own = ServiceLock.layer({ filename: file, database: filename })
  return file === join(dataDir, "muster.lock") ? own : Layer.merge(folder, own)
}
