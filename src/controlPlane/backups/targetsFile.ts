/** The file of `MUSTER_BACKUP_TARGETS` (spec 12.6). */
import { Effect, Schema } from "effect"
import {
  BackupTargetId,
  FolderSettings,
  NODE_TARGET,
  S3Settings,
  SecretAccessKey,
  type TargetSettings
} from "../../contract/domain/BackupTarget.ts"
import type { InvalidRequest } from "../../contract/domain/errors.ts"
import { settingFile } from "../http/settingFile.ts"

export const TARGETS_SETTING = "MUSTER_BACKUP_TARGETS"

export interface BackupTargetsOptions {
  /** The file of `MUSTER_BACKUP_TARGETS`, if any. */
  readonly file?: string
  readonly variable: (name: string) => string | undefined
  /** Whether targets may have loopback, link-local and private addresses. */
  readonly allowPrivate: boolean
}

/** A target of the file, with its secret if it has one. */
export interface FileTarget {
  readonly id: string
  readonly settings: TargetSettings
  readonly secret: string | undefined
}

const InFolder = Schema.Struct({ id: BackupTargetId, ...FolderSettings.fields })
const InBucket = Schema.Struct({
  id: BackupTargetId,
  ...S3Settings.fields,
  secret_access_key: Schema.optionalKey(Schema.String),
  /** A variable of the service, or a file, with the secret. */
  secret_access_key_env: Schema.optionalKey(Schema.String),
  secret_access_key_file: Schema.optionalKey(Schema.String)
})
const TargetsInFile = Schema.Struct({ targets: Schema.Array(Schema.Union([InFolder, InBucket])) })
const isSecret = Schema.is(SecretAccessKey)

/** Reads the targets of the file. @error InvalidRequest the file cannot be read, or is not valid */
export const makeFileTargets = (
  { file: path, variable }: BackupTargetsOptions,
  check: (endpoint: string) => string | undefined
) =>
  Effect.gen(function* (): Effect.fn.Return<ReadonlyMap<string, FileTarget>, InvalidRequest> {
    if (path === undefined) return new Map()
    const file = settingFile(TARGETS_SETTING, path)
    const { targets } = yield* file.decode(TargetsInFile)
    yield* file.refuseTwice(targets.map(({ id }) => id))
    const read = yield* Effect.forEach(
      targets,
      Effect.fnUntraced(function* (entry) {
        const { id } = entry
        if (id === NODE_TARGET) return yield* file.invalid(`${id}: every service has this target`)
        if (entry.type === "node")
          return { id, settings: { type: entry.type, folder: entry.folder }, secret: undefined }
        const {
          id: _,
          secret_access_key: inline,
          secret_access_key_env,
          secret_access_key_file,
          ...settings
        } = entry
        const refused = check(settings.endpoint)
        if (refused !== undefined) return yield* file.invalid(`${id}: ${refused}`)
        const places = { inline, variable: secret_access_key_env, file: secret_access_key_file }
        const secret = yield* file.secret(places, variable)
        if (!isSecret(secret))
          return yield* file.invalid(
            `${id}: expected one of secret_access_key, secret_access_key_env and secret_access_key_file, with a secret`
          )
        return { id, settings, secret }
      })
    )
    return new Map(read.map((target) => [target.id, target]))
  })
