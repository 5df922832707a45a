/** The secret that encrypts the tokens of nodes and the secrets of webhooks and targets: a file outside the database, and so outside its backups. */

import { randomBytes } from "node:crypto"
import { statSync } from "node:fs"
import { join, resolve } from "node:path"
import { Context, Effect, Layer, Schedule } from "effect"
import { BackupTargetSeal, makeBackupTargetSeal } from "../controlPlane/backups/BackupTargets.ts"
import { writeNewFile } from "../controlPlane/keys/firstKey.ts"
import { makeTokenSeal, TokenSeal } from "../controlPlane/nodes/nodeWrites.ts"
import { makeSftpSeal, SftpSeal } from "../controlPlane/sftp/SftpHostKey.ts"
import { Leadership } from "../controlPlane/store/Leadership.ts"
import { SecretRepo } from "../controlPlane/store/Seal.ts"
import { Store } from "../controlPlane/store/Store.ts"
import { makeWebhookSeal, WebhookSeal } from "../controlPlane/webhooks/send.ts"
import { commandSettings } from "../shared/config/command.ts"
import { nodeSettings } from "../shared/config/node.ts"
import { readSecretBytes, type Setting } from "../shared/config/Setting.ts"
import { StartError } from "../shared/config/StartError.ts"
import { type ServiceSettings, settings } from "../shared/config/service.ts"

/** The settings of all commands; some are there several times. */
export const allSettings: ReadonlyArray<Setting<unknown>> = [settings, nodeSettings, commandSettings].flatMap(
  (some) => Object.values(some)
)

const secrets = allSettings.flatMap(({ name, secret }) => (secret === true ? [name] : []))

const taken = new Map<string, string | undefined>()

/** Returns a variable with a secret, and removes it from `process.env`, so that no child process inherits it. */
export const takeVariable = (name: string): string | undefined => {
  const { [name]: value } = process.env
  if (value !== undefined) {
    taken.set(name, value)
    Reflect.deleteProperty(process.env, name)
  }
  return taken.get(name)
}

/** Returns the environment at the start, and removes the values of secret settings from `process.env`. */
export const takeSecrets = (): Record<string, string> => {
  const found = Object.entries(process.env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const]
  )
  for (const name of secrets) takeVariable(name)
  return Object.fromEntries(found)
}

const SECRET_FILE = "secret.key"
const SETTING = "MUSTER_SECRET_FILE"
const SHORTEST = 32

/** A service that has just ended is counted for a moment. */
const AGAIN = Schedule.max([Schedule.spaced("250 millis"), Schedule.recurs(20)])

const makeFile = (path: string) =>
  writeNewFile(path, randomBytes(SHORTEST).toString("base64url")).pipe(
    Effect.mapError(
      (cause) => new StartError({ message: `${path} cannot be written (${cause.message}); set ${SETTING}` })
    )
  )

const warnOfReaders = (path: string, others: number) =>
  Effect.suspend(() =>
    ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & others) === 0
      ? Effect.void
      : Effect.logWarning(
          `${path} can be read by others, who can then read the tokens of nodes: run \`chmod 600 ${path}\``
        )
  )

/**
 * Reads the secret of the service; the first start makes its file.
 * @error StartError unreadable, unwritable or too short
 */
const openSecret = Effect.fnUntraced(function* ({ secretFile }: ServiceSettings, dataDir: string) {
  const isOwn = secretFile === ""
  const path = isOwn ? join(dataDir, SECRET_FILE) : resolve(secretFile)
  if (isOwn && statSync(path, { throwIfNoEntry: false }) === undefined) yield* makeFile(path)
  const bytes = yield* readSecretBytes(SETTING, path)
  if (bytes.length < SHORTEST) {
    const next = isOwn ? "move it away and start again: nodes then register again" : "name a longer one"
    return yield* new StartError({
      message: `${SETTING}: ${path} has ${bytes.length} bytes, and needs ${SHORTEST}; ${next}`
    })
  }
  // systemd and Kubernetes give such files to a group.
  yield* warnOfReaders(path, isOwn ? 0o077 : 0o007)
  // A newline at the end does not count: editors add one.
  return Buffer.from(bytes.toString("latin1").replace(/[\r\n]+$/, ""), "latin1")
})

/** Provides the seals of all secrets in the database. */
export const SecretLayer = (settings: ServiceSettings, dataDir: string) =>
  Layer.effectContext(
    Effect.map(openSecret(settings, dataDir), (secret) =>
      Context.make(TokenSeal, makeTokenSeal(secret)).pipe(
        Context.add(WebhookSeal, makeWebhookSeal(secret)),
        Context.add(BackupTargetSeal, makeBackupTargetSeal(secret)),
        Context.add(SftpSeal, makeSftpSeal(secret))
      )
    )
  )

/**
 * Refuses a secret that differs from a running service's: each calls every node.
 * @error StartError the secrets differ
 */
export const refuseOtherSecret = Layer.effectDiscard(
  Effect.gen(function* () {
    const { othersServe } = yield* Leadership
    const { fingerprint } = yield* TokenSeal
    const repo = yield* SecretRepo
    const store = yield* Store
    const look = Effect.gen(function* () {
      const stored = yield* store.read(repo.fingerprint)
      const differs = stored !== undefined && stored !== fingerprint
      return { stored, refused: differs && (yield* othersServe) }
    })
    const { refused, stored } = yield* Effect.repeat(look, { schedule: AGAIN, while: (seen) => seen.refused })
    if (refused) {
      return yield* new StartError({
        message: `another service on this database has another secret (${stored}, here ${fingerprint}): set ${SETTING} of all services to copies of one file`
      })
    }
    if (stored === fingerprint) return
    if (stored !== undefined) {
      yield* Effect.logWarning(
        `the secret is not that of the last start (${stored}, here ${fingerprint}): all nodes register again`
      )
    }
    // With a full disk, the service serves reads.
    yield* Effect.catch(store.write(repo.save(fingerprint)), ({ detail }) =>
      Effect.logWarning(`the fingerprint of the secret cannot be stored: ${detail}`)
    )
  })
)
