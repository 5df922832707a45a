import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Layer, Redacted } from "effect"
import { MusterClient } from "../client/index.ts"
import { loadCommandSettings } from "../commandConfig.ts"
import { StartError } from "../config.ts"
import { ADMIN_KEY_FILE } from "../keys/firstKey.ts"
import { CommandLogging } from "./logging.ts"

const keyIn = (dataDir: string) =>
  Effect.try({
    try: () => readFileSync(join(dataDir, ADMIN_KEY_FILE), "utf8").trim(),
    catch: () =>
      new StartError({
        message: `there is no key: set MUSTER_API_KEY, or MUSTER_DATA_DIR to where the service has its ${ADMIN_KEY_FILE}`
      })
  })

/** The service that a command talks to, as the settings name it. */
export const CommandClient = Layer.unwrap(
  Effect.gen(function* () {
    const { apiKey, dataDir, url } = yield* loadCommandSettings
    const key = apiKey === "" ? yield* keyIn(dataDir) : apiKey
    return MusterClient.layer({ baseUrl: url, key: Redacted.make(key) })
  })
).pipe(Layer.provideMerge(CommandLogging))

interface ApiFailure {
  readonly detail: string
  readonly hint: string
}

const isOfApi = (failure: object): failure is ApiFailure => "detail" in failure && "hint" in failure

/** What a call has failed with, for the person who runs the command. */
export const inWords = (failure: object): StartError => {
  if (isOfApi(failure)) return new StartError({ message: `${failure.detail}. ${failure.hint}` })
  const answered = "response" in failure && failure.response !== undefined
  return new StartError({
    message: answered
      ? "the service's answer is not understood: run the same version of muster on both sides"
      : "the service cannot be reached: set MUSTER_URL to where it is"
  })
}
