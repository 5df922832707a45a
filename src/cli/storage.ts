import { mkdirSync } from "node:fs"
import { join, resolve } from "node:path"
import { Effect, Layer } from "effect"
import { type ServiceSettings, StartError } from "../config.ts"
import { layerSqlite } from "../store/layerSqlite.ts"

/** The data folder, made with mode 0700 when missing; its absolute path. */
export const openDataDir = (settings: Pick<ServiceSettings, "dataDir">) =>
  Effect.try({
    try: () => {
      const folder = resolve(settings.dataDir)
      mkdirSync(folder, { recursive: true, mode: 0o700 })
      return folder
    },
    catch: (cause) =>
      new StartError({
        message: `the data folder ${settings.dataDir} cannot be made (${cause instanceof Error ? cause.message : cause}); set MUSTER_DATA_DIR`
      })
  })

/** The store that the settings name. */
export const StoreLayer = (settings: ServiceSettings, dataDir: string) =>
  layerSqlite({
    filename: databaseFile(settings, dataDir),
    retention: { maxAge: `${settings.eventsKeepHours} hours`, maxEntries: settings.eventsKeepCount }
  })

const databaseFile = (settings: ServiceSettings, dataDir: string) =>
  settings.databaseUrl === ""
    ? join(dataDir, "muster.db")
    : resolve(settings.databaseUrl.slice("sqlite:".length))

/** The store for a command that runs beside the service. */
export const CommandStore = (settings: ServiceSettings) =>
  Layer.unwrap(Effect.map(openDataDir(settings), (dataDir) => StoreLayer(settings, dataDir)))
