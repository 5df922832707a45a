/** The credentials for image registries, as stored by `docker login`. Secrets stay {@link Redacted}. */
import { Effect, Option, Redacted, Schema } from "effect"
import { type IoError, meaningOf, orMissing, readText } from "../../disk/fsio.ts"
import { runTool } from "../../host/runTool.ts"
import { LaunchFailed } from "../Runtime.ts"

const Text = Schema.optionalKey(Schema.String)
const Entry = Schema.Struct({
  /** `user:password` in Base64. */
  auth: Text,
  username: Text,
  password: Text,
  identitytoken: Text,
  registrytoken: Text
})
const ConfigFile = Schema.fromJsonString(
  Schema.Struct({
    auths: Schema.optionalKey(Schema.Record(Schema.String, Entry)),
    credsStore: Text,
    credHelpers: Schema.optionalKey(Schema.Record(Schema.String, Schema.String))
  })
)
const decodeConfig = Schema.decodeUnknownEffect(ConfigFile)
const decodeHelped = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ Username: Schema.String, Secret: Schema.String }))
)

/** The credentials of a registry in the engine's format (Engine API, "Authentication"). */
export type RegistryAuth = Redacted.Redacted<
  { readonly serveraddress: string } & (
    | { readonly username: string; readonly password: string }
    | { readonly identitytoken: string }
    | { readonly registrytoken: string }
  )
>

const HUB = "docker.io"

/** Returns the host of the registry in a reference; Docker Hub if there is none. */
export const registryOf = (image: string): string => {
  const slash = image.indexOf("/")
  const first = slash < 0 ? "" : image.slice(0, slash)
  const isHost = first.includes(".") || first.includes(":") || first === "localhost"
  return isHost && first !== "index.docker.io" ? first : HUB
}

/** Returns the keys of a registry in the file: Docker Hub has legacy ones. */
const keysOf = (registry: string): ReadonlyArray<string> =>
  registry === HUB
    ? ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"]
    : [registry, `https://${registry}`, `http://${registry}`]

const isKeyOf = (registry: string) => {
  const keys = keysOf(registry)
  return (key: string) => keys.includes(key) || keys.some((known) => key.startsWith(`${known}/`))
}

const entryOf = <A>(all: Readonly<Record<string, A>> | undefined, registry: string) =>
  Object.entries(all ?? {}).find(([key]) => isKeyOf(registry)(key))

/** Without the path: pull errors are visible outside this host. */
const problem = (message: string) =>
  new LaunchFailed({
    message: `config file of Docker: ${message}`,
    next: "check it (MUSTER_DOCKER_CONFIG)"
  })

const authOf = (serveraddress: string, entry: typeof Entry.Type) => {
  const { auth = "", identitytoken = "", password = "", registrytoken = "", username = "" } = entry
  if (identitytoken !== "") return Effect.succeed(Redacted.make({ serveraddress, identitytoken }))
  if (registrytoken !== "") return Effect.succeed(Redacted.make({ serveraddress, registrytoken }))
  const pair = auth === "" ? `${username}:${password}` : Buffer.from(auth, "base64").toString("utf8")
  const colon = pair.indexOf(":")
  return colon < 1
    ? Effect.fail(problem(`the entry of ${serveraddress} has no user and password`))
    : Effect.succeed(
        Redacted.make({
          serveraddress,
          username: pair.slice(0, colon),
          password: pair.slice(colon + 1).replace(/\0+$/, "")
        })
      )
}

/** The timeout of a credential helper, in ms. */
const HELPER_TIMEOUT = 30_000
/** The output of helpers for an unknown registry; Docker tests for the same text. */
const notFound = /credentials not found/

/** Runs `docker-credential-<name>` for its entry, if any. Its output never becomes part of a message. */
const runHelper = Effect.fnUntraced(function* (name: string, serveraddress: string) {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name))
    return yield* problem("the name of its credential helper is invalid")
  const program = `docker-credential-${name}`
  const failed = (reason: string) => problem(`${program} ${reason}`)
  // Helpers need the HOME and PATH of the daemon, so they inherit its environment.
  const result = yield* runTool([program, "get"], { input: serveraddress, env: undefined }).pipe(
    Effect.catch(({ code }) =>
      Effect.fail(failed(code === "ENOENT" ? "is not in the PATH of the daemon" : "failed: run it manually"))
    ),
    Effect.timeoutOption(HELPER_TIMEOUT)
  )
  if (Option.isNone(result)) return yield* failed("timed out: run it manually")
  const { code, stdout } = result.value
  if (code !== 0 && notFound.test(stdout)) return undefined
  if (code !== 0) return yield* failed("failed: run it manually")
  const { Secret, Username } = yield* Effect.mapError(decodeHelped(stdout), () =>
    failed("returned an invalid response")
  )
  return Redacted.make(
    Username === "<token>"
      ? { serveraddress, identitytoken: Secret }
      : { serveraddress, username: Username, password: Secret }
  )
})

/** Returns the credentials for an image, read on each call: `docker login` needs no restart. */
export const registryAuth = Effect.fnUntraced(
  function* (
    image: string,
    path: string
  ): Effect.fn.Return<RegistryAuth | undefined, LaunchFailed | IoError> {
    const text = yield* readText(path).pipe(orMissing(undefined))
    if (text === undefined) return undefined
    // The decoder's message would quote the file.
    const config = yield* Effect.mapError(decodeConfig(text), () =>
      problem("this is not a configuration of Docker's command line")
    )
    const registry = registryOf(image)
    const [known, entry] = entryOf(config.auths, registry) ?? []
    const address = known ?? keysOf(registry)[0] ?? registry
    const helper = entryOf(config.credHelpers, registry)?.[1] ?? config.credsStore
    if (helper !== undefined && helper !== "") return yield* runHelper(helper, address)
    const empty = entry === undefined || Object.keys(entry).length === 0
    return empty || known === undefined ? undefined : yield* authOf(known, entry)
  },
  Effect.catchTag("IoError", ({ code }) =>
    Effect.fail(problem(meaningOf(code) ?? `it cannot be read (${code})`))
  )
)
