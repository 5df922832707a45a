/** Who the daemon is to image registries, as `docker login` has noted it. Secrets stay {@link Redacted}. */
import { execFile } from "node:child_process"
import { Effect, Redacted, Schema } from "effect"
import { type IoError, meaningOf, orMissing, readText } from "../../disk/fsio.ts"
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

/** What the engine is told of a registry's user (Engine API, "Authentication"). */
export type RegistryAuth = Redacted.Redacted<
  { readonly serveraddress: string } & (
    | { readonly username: string; readonly password: string }
    | { readonly identitytoken: string }
    | { readonly registrytoken: string }
  )
>

const HUB = "docker.io"

/** Host of the registry that a reference names; without one it is Docker Hub. */
export const registryOf = (image: string): string => {
  const slash = image.indexOf("/")
  const first = slash < 0 ? "" : image.slice(0, slash)
  const isHost = first.includes(".") || first.includes(":") || first === "localhost"
  return isHost && first !== "index.docker.io" ? first : HUB
}

/** Keys of a registry in the file: Docker Hub has an old one of its own. */
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

/** Without its path: what a pull fails with is read beyond this machine, too. */
const problem = (message: string) =>
  new LaunchFailed({
    message: `config file of Docker: ${message}`,
    next: "look at it (MUSTER_DOCKER_CONFIG)"
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

/** How long a credential helper may take, in ms. */
const HELPER = 30_000
/** What helpers say of a registry that they know nothing of; it is what Docker looks for, too. */
const notFound = /credentials not found/

/** Asks `docker-credential-<name>`; undefined where it knows nothing. What it prints is never part of a message. */
const ask = Effect.fnUntraced(function* (name: string, serveraddress: string) {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) return yield* problem("the name of its credential helper is none")
  const program = `docker-credential-${name}`
  const failed = (reason: string) => problem(`${program} ${reason}`)
  const text = yield* Effect.callback<string | undefined, LaunchFailed>((resume) => {
    const child = execFile(program, ["get"], { timeout: HELPER, maxBuffer: 65_536 }, (error, stdout) => {
      if (error === null) return resume(Effect.succeed(stdout))
      if (notFound.test(stdout)) return resume(Effect.succeed(undefined))
      const missing = error.code === "ENOENT"
      resume(Effect.fail(failed(missing ? "is not in the PATH of the daemon" : "has failed: run it by hand")))
    })
    child.stdin?.on("error", () => {}) // it does not read: its exit says enough
    child.stdin?.end(serveraddress)
    return Effect.sync(() => child.kill())
  })
  if (text === undefined) return undefined
  const { Secret, Username } = yield* Effect.mapError(decodeHelped(text), () =>
    failed("has answered something that is not of its protocol")
  )
  return Redacted.make(
    Username === "<token>"
      ? { serveraddress, identitytoken: Secret }
      : { serveraddress, username: Username, password: Secret }
  )
})

/**
 * What the registry of an image is told, from the config file of Docker's command line; undefined for nothing. Read
 * anew each time: who logs in need not restart the daemon. A file that is not there is none.
 */
export const registryAuth = Effect.fnUntraced(
  function* (
    image: string,
    path: string
  ): Effect.fn.Return<RegistryAuth | undefined, LaunchFailed | IoError> {
    const text = yield* readText(path).pipe(orMissing(undefined))
    if (text === undefined) return undefined
    // The decoder's own words would quote the file.
    const config = yield* Effect.mapError(decodeConfig(text), () =>
      problem("this is not a configuration of Docker's command line")
    )
    const registry = registryOf(image)
    const [known, entry] = entryOf(config.auths, registry) ?? []
    const address = known ?? keysOf(registry)[0] ?? registry
    const helper = entryOf(config.credHelpers, registry)?.[1] ?? config.credsStore
    if (helper !== undefined && helper !== "") return yield* ask(helper, address)
    const empty = entry === undefined || Object.keys(entry).length === 0
    return empty || known === undefined ? undefined : yield* authOf(known, entry)
  },
  Effect.catchTag("IoError", ({ code }) =>
    Effect.fail(problem(meaningOf(code) ?? `it cannot be read (${code})`))
  )
)
