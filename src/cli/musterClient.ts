import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer, Redacted } from "effect"
import type { HttpClientError } from "effect/http"
import { whyNoAnswer } from "../api/transport.ts"
import { CommandLogging } from "../app/logging.ts"
import { MusterClient } from "../client/index.ts"
import { loadCommandSettings } from "../config/command.ts"
import { StartError } from "../config/StartError.ts"
import { ADMIN_KEY_FILE } from "../keys/firstKey.ts"

const MAKE_A_KEY = "`muster keys create --name <name>` beside the service makes one"

const keyIn = (file: string) =>
  Effect.try({
    try: () => readFileSync(file, "utf8").trim(),
    catch: () =>
      new StartError({
        message: `there is no key: set MUSTER_API_KEY (${MAKE_A_KEY}), or MUSTER_DATA_DIR to where the service has its ${ADMIN_KEY_FILE}`
      })
  })

/** The service that a command calls, from the settings. */
export class CommandTarget extends Context.Service<
  CommandTarget,
  {
    readonly url: string
    /** The origin of its key. */
    readonly keyFrom: string
  }
>()("muster/cli/CommandTarget") {}

/** The client of the service that a command calls. */
export const CommandClient = Layer.unwrap(
  Effect.gen(function* () {
    const { apiKey, dataDir, url } = yield* loadCommandSettings
    const file = join(dataDir, ADMIN_KEY_FILE)
    const key = apiKey === "" ? yield* keyIn(file) : apiKey
    const keyFrom = apiKey === "" ? file : "MUSTER_API_KEY"
    return Layer.merge(
      MusterClient.layer({ baseUrl: url, key: Redacted.make(key) }),
      Layer.succeed(CommandTarget, CommandTarget.of({ url, keyFrom }))
    )
  })
).pipe(Layer.provideMerge(CommandLogging))

interface ApiFailure {
  readonly _tag: string
  readonly detail: string
  readonly hint: string
}

const isOfApi = (failure: object): failure is ApiFailure => "detail" in failure && "hint" in failure

const isOfTransport = (failure: object): failure is HttpClientError.HttpClientError =>
  "_tag" in failure && failure._tag === "HttpClientError" && "reason" in failure

const ofApi = ({ _tag, detail, hint }: ApiFailure, { keyFrom, url }: CommandTarget["Service"]): string => {
  if (_tag === "Unauthorized" || _tag === "Forbidden") {
    const set = keyFrom === "MUSTER_API_KEY" ? "set it to" : "set MUSTER_API_KEY to"
    return `${url} refuses the key of ${keyFrom}: ${detail}; ${set} a key of scope AppAdmin; ${MAKE_A_KEY}`
  }
  return `${detail}. ${hint}`
}

const ofTransport = (failure: HttpClientError.HttpClientError, { url }: CommandTarget["Service"]): string => {
  const { code, kind, message } = whyNoAnswer(failure)
  const said = kind === "tls" ? `TLS fails: ${code}: ${message}` : code || message || "no response"
  const hint =
    kind === "tls"
      ? "check its scheme, and NODE_EXTRA_CA_CERTS where the authority is private"
      : "set MUSTER_URL to where the service is"
  return `${url} cannot be reached (${said}): ${hint}`
}

/** Returns the failure of a call in words for the user of the command. */
const inWords = (failure: object, target: CommandTarget["Service"]): StartError => {
  if (isOfApi(failure)) return new StartError({ message: ofApi(failure, target) })
  if (isOfTransport(failure) && failure.response === undefined) {
    return new StartError({ message: ofTransport(failure, target) })
  }
  return new StartError({
    message: `the response of ${target.url} is invalid: check MUSTER_URL, and run the same version of muster on both sides`
  })
}

/** Calls the service of the settings; failures say what to do next. */
export const ask = <A, E extends object>(use: (muster: MusterClient["Service"]) => Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const muster = yield* MusterClient
    const target = yield* CommandTarget
    return yield* Effect.mapError(use(muster), (failure) => inWords(failure, target))
  })
