import { mkdirSync, statSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Effect, Layer, Metric, Schedule } from "effect"
import {
  type DiskError,
  holdReserve,
  makeRoomToStart,
  reserveFileOf,
  spaceOf
} from "../controlPlane/store/disk/DatabaseDisk.ts"
import { layerDatabase } from "../controlPlane/store/layers/layerDatabase.ts"
import type { StoreStartError } from "../controlPlane/store/sql/sqlErrors.ts"
import { lockFileOf, ServiceLock } from "../controlPlane/store/sqlite/database.ts"
import type { DatabaseUrl } from "../shared/config/DatabaseUrl.ts"
import { StartError } from "../shared/config/StartError.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import { diskFree } from "../shared/observability/metrics.ts"

/** Part of the disk below which a warning is due, and from which the disk has recovered. */
const LOW = 0.05
const RECOVERED = 0.06

const LOOK_EVERY = "1 second"

const describe = (free: number, total: number) =>
  `${Math.floor(free / 1_048_576)} MiB of ${Math.floor(total / 1_048_576)} MiB are free`

/**
 * Checks the data disk each second, warns below 5 % and logs the recovery. A full disk releases `reserve`, the space
 * for the next start.
 */
export const watchDataDisk = Effect.fnUntraced(function* (folder: string, reserve?: string) {
  let isLow = false
  const look = Effect.gen(function* () {
    const space = yield* spaceOf(folder)
    const { free, total } = space
    yield* Metric.update(diskFree, free)
    const part = total === 0 ? 1 : free / total
    if (!isLow && part < LOW) {
      isLow = true
      yield* Effect.logWarning(`the disk of the data folder is almost full: ${describe(free, total)}`)
    } else if (isLow && part >= RECOVERED) {
      isLow = false
      yield* Effect.logInfo(`the disk of the data folder has room again: ${describe(free, total)}`)
    }
    if (reserve !== undefined) yield* holdReserve(reserve, space)
  })
  const quietly = Effect.catch((error: DiskError) =>
    Effect.logDebug(`the disk of the data folder cannot be read: ${error.message}`)
  )
  if (reserve !== undefined) yield* quietly(makeRoomToStart(reserve, folder))
  yield* quietly(look).pipe(
    Effect.annotateLogs({ folder }),
    Effect.repeat(Schedule.spaced(LOOK_EVERY)),
    Effect.forkScoped
  )
})

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

/** Returns the database of the settings; files by their absolute path. */
export const databaseOf = ({ databaseUrl }: ServiceSettings, dataDir: string): DatabaseUrl => {
  switch (databaseUrl._tag) {
    case "DataFolder":
      return { _tag: "Sqlite", filename: join(dataDir, "muster.db") }
    case "Sqlite":
      return { _tag: "Sqlite", filename: resolve(databaseUrl.filename) }
    case "Postgres":
      return databaseUrl
  }
}

export const hasEmbeddedNode = ({ databaseUrl, embeddedNode }: ServiceSettings): boolean =>
  embeddedNode === "auto" ? databaseUrl._tag !== "Postgres" : embeddedNode

export const StoreLayer = (
  settings: ServiceSettings,
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
export const makeRoom = Effect.fnUntraced(function* (settings: ServiceSettings, dataDir: string) {
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
  settings: ServiceSettings,
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
