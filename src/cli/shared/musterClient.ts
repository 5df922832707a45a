import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer, Redacted, Stream } from "effect"
import type { HttpClientError } from "effect/http"
import { whyNoAnswer } from "../../api/transport.ts"
import { CommandLogging } from "../../app/logging.ts"
import { MusterClient, WaitTimedOut } from "../../client/index.ts"
import { LOCAL_SERVICE, loadCommandSettings } from "../../config/command.ts"
import { ADMIN_KEY_FILE } from "../../domain/Key.ts"
import { CommandError, type ExitStatus } from "./CommandError.ts"
import { currentContext } from "./contexts.ts"

const MAKE_A_KEY = "`muster keys create --name <name>` beside the service makes one"

const keyIn = (file: string) =>
  Effect.try({
    try: () => readFileSync(file, "utf8").trim(),
    catch: () =>
      new CommandError({
        status: "notAllowed",
        message: `there is no key: set MUSTER_API_KEY (${MAKE_A_KEY}), or MUSTER_DATA_DIR to where the service has its ${ADMIN_KEY_FILE}`
      })
  })

/** The service that a command calls, and its key. */
export class CommandTarget extends Context.Service<
  CommandTarget,
  {
    readonly url: string
    readonly key: Redacted.Redacted<string>
    /** The origin of the key. */
    readonly keyFrom: string
  }
>()("muster/cli/CommandTarget") {}

/**
 * The service from the settings, else from the current context, else the one of the data folder. A key of a context is
 * for the URL of that context only.
 */
const target = Effect.gen(function* () {
  const { apiKey, dataDir, url } = yield* loadCommandSettings
  const context = url === "" ? yield* currentContext : undefined
  const address = url === "" ? (context?.url ?? LOCAL_SERVICE) : url
  if (apiKey !== "") return { url: address, key: Redacted.make(apiKey), keyFrom: "MUSTER_API_KEY" }
  if (context !== undefined) {
    return { url: address, key: Redacted.make(context.key), keyFrom: `the context ${context.name}` }
  }
  const file = join(dataDir, ADMIN_KEY_FILE)
  return { url: address, key: Redacted.make(yield* keyIn(file)), keyFrom: file }
})

/** The client of the service that a command calls. */
export const CommandClient = Layer.unwrap(
  Effect.map(target, (found) =>
    Layer.merge(
      MusterClient.layer({ baseUrl: found.url, key: found.key }),
      Layer.succeed(CommandTarget, CommandTarget.of(found))
    )
  )
).pipe(Layer.provideMerge(CommandLogging))

interface ApiFailure {
  readonly code: string
  readonly detail: string
  readonly hint: string
}

const isOfApi = (failure: object): failure is ApiFailure =>
  "code" in failure && "detail" in failure && "hint" in failure

const isOfTransport = (failure: object): failure is HttpClientError.HttpClientError =>
  "_tag" in failure && failure._tag === "HttpClientError" && "reason" in failure

/** The exit status for a status of HTTP (operators.md, "Command line"). */
const statusOf: Readonly<Record<string, ExitStatus>> = {
  401: "notAllowed",
  403: "notAllowed",
  404: "notFound",
  409: "refused",
  422: "usage",
  503: "refused"
}

const ofApi = ({ code, detail, hint }: ApiFailure, target: CommandTarget["Service"]): CommandError => {
  const status = statusOf[code] ?? "failed"
  if (status !== "notAllowed") return new CommandError({ status, message: `${detail}. ${hint}` })
  const { keyFrom, url } = target
  const refused = `${url} refuses the key of ${keyFrom}: ${detail}`
  const set = keyFrom === "MUSTER_API_KEY" ? "set it to" : "set MUSTER_API_KEY to"
  if (code === "401" || /lacks the scope \w+$/.test(detail)) {
    return new CommandError({ status, message: `${refused}; ${set} a key of scope AppAdmin; ${MAKE_A_KEY}` })
  }
  const right = /lacks: (\w+)$/.exec(detail)?.[1]
  // Another key would not help: the limits of this one, or its quota, are the reason.
  if (right === undefined) return new CommandError({ status, message: `${refused}. ${hint}` })
  return new CommandError({
    status,
    message: `${refused}; ${set} a key with this right; \`muster keys create --name <name> --scope Operator --allow ${right}\` beside the service makes one`
  })
}

/** The statuses of a proxy whose service cannot be reached. */
const OF_PROXY = [502, 503, 504]

const ofTransport = (failure: HttpClientError.HttpClientError, url: string): CommandError | undefined => {
  const { response } = failure
  if (response !== undefined && !OF_PROXY.includes(response.status)) return undefined
  const { code, kind, message } = whyNoAnswer(failure)
  const reason =
    response === undefined ? code || message || "no response" : `a proxy responds with ${response.status}`
  const said = kind === "tls" ? `TLS fails: ${code}: ${message}` : reason
  const hint =
    kind === "tls"
      ? "check its scheme, and NODE_EXTRA_CA_CERTS where the authority is private"
      : "set MUSTER_URL to where the service is"
  return new CommandError({ status: "unreachable", message: `${url} cannot be reached (${said}): ${hint}` })
}

/** Returns the failure of a call in words for the user of the command. */
const inWords = (failure: object, target: CommandTarget["Service"]): CommandError => {
  if (failure instanceof CommandError) return failure
  if (isOfApi(failure)) return ofApi(failure, target)
  if (failure instanceof WaitTimedOut) return new CommandError({ status: "failed", message: failure.message })
  return (
    (isOfTransport(failure) ? ofTransport(failure, target.url) : undefined) ??
    new CommandError({
      status: "failed",
      message: `the response of ${target.url} is invalid: check MUSTER_URL, and run the same version of muster on both sides`
    })
  )
}

/** Calls the service of the settings; failures say what to do next. */
export const ask = <A, E extends object, R>(
  use: (muster: MusterClient["Service"]) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const muster = yield* MusterClient
    const target = yield* CommandTarget
    return yield* Effect.mapError(use(muster), (failure) => inWords(failure, target))
  })

/** Reads a stream of the service of the settings; failures say what to do next. */
export const askStream = <A, E extends object, R>(
  use: (muster: MusterClient["Service"]) => Stream.Stream<A, E, R>
) =>
  Stream.unwrap(
    Effect.gen(function* () {
      const muster = yield* MusterClient
      const target = yield* CommandTarget
      return Stream.mapError(use(muster), (failure) => inWords(failure, target))
    })
  )
