/** Runs `git` without prompts, hooks and settings of the host. */
import { Data, Effect, FileSystem, Path, type PlatformError, Schedule, Stream } from "effect"
import { ChildProcess } from "effect/process"
import { printable } from "../parse/located.ts"
import type { GitAddress } from "./parseSources.ts"

/** git failed; `reason` is one line, without secrets and without paths of this host. */
export class GitFailed extends Data.TaggedError("GitFailed")<{ readonly reason: string }> {}

export interface GitContext {
  /** The repository of the calls: an existing folder. */
  readonly directory: string
  readonly address: GitAddress
  /** The value of the Authorization header; never an argument, never in a file. */
  readonly authorization: string | undefined
  /** Texts that no message may contain. */
  readonly secrets: ReadonlyArray<string>
  readonly ca_file: string | undefined
  /** Size of the repository on the disk above which git is killed, in bytes. */
  readonly maxBytes: number
  /** Environment of this process; only the variables of `HANDED_ON` are passed on. */
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** The only variables that git inherits: programs, proxies, certificates and ssh keys. */
const HANDED_ON = [
  "PATH",
  "HTTP_PROXY",
  "HTTPS_PROXY",
  "ALL_PROXY",
  "NO_PROXY",
  "http_proxy",
  "https_proxy",
  "all_proxy",
  "no_proxy",
  "SSL_CERT_FILE",
  "SSL_CERT_DIR",
  "GIT_SSL_CAINFO",
  "GIT_SSL_CAPATH",
  "SSH_AUTH_SOCK"
]

/** The kept part of git's standard error: its end. */
const MAX_ERROR_BYTES = 8 * 1024

const settingsOf = ({ address, authorization }: GitContext): ReadonlyArray<readonly [string, string]> => [
  ["core.hooksPath", "/dev/null"],
  ["core.fsmonitor", "false"],
  ["credential.helper", ""],
  ["gc.auto", "0"],
  ["maintenance.auto", "false"],
  ["fetch.recurseSubmodules", "false"],
  ["transfer.bundleURI", "false"],
  ["protocol.version", "2"],
  // A git whose service was killed must not wait for a silent server for ever.
  ["http.lowSpeedLimit", "1"],
  ["http.lowSpeedTime", "60"],
  ...(authorization === undefined
    ? []
    : ([
        [`http.${new URL(address.url).origin}/.extraHeader`, `Authorization: ${authorization}`],
        // A redirect would send the header to another host.
        ["http.followRedirects", "false"]
      ] as const))
]

const environmentOf = (context: GitContext): Record<string, string> => {
  const env: Record<string, string> = {}
  for (const name of HANDED_ON) {
    const value = context.environment[name]
    if (value !== undefined) env[name] = value
  }
  const settings = settingsOf(context)
  settings.forEach(([key, value], index) => {
    env[`GIT_CONFIG_KEY_${index}`] = key
    env[`GIT_CONFIG_VALUE_${index}`] = value
  })
  return {
    ...env,
    GIT_CONFIG_COUNT: String(settings.length),
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_ALLOW_PROTOCOL: context.address.protocol,
    GIT_NO_LAZY_FETCH: "1",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_DIR: context.directory,
    GIT_SSH_COMMAND:
      "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4",
    HOME: context.directory,
    LC_ALL: "C",
    ...(context.ca_file === undefined ? {} : { GIT_SSL_CAINFO: context.ca_file })
  }
}

/** Runs git. Interruption, and output above `maxBytes` (`tooMuch`), kill git with all its children. */
export const git = Effect.fnUntraced(function* (
  context: GitContext,
  args: ReadonlyArray<string>,
  options: {
    readonly stdin?: string
    readonly cwd?: string
    readonly maxBytes?: number
    readonly tooMuch?: string
    /** Whether the call adds to the repository, whose size is then watched. */
    readonly grows?: boolean
  } = {}
) {
  const { maxBytes = 64 * 1024, tooMuch = "the output of git is too long" } = options
  const handle = yield* ChildProcess.make("git", args, {
    cwd: options.cwd ?? context.directory,
    env: environmentOf(context),
    stdin: options.stdin === undefined ? "ignore" : Stream.encodeText(Stream.make(options.stdin)),
    killSignal: "SIGKILL",
    forceKillAfter: "1 second"
  }).pipe(Effect.mapError(notStarted))
  const ended = Effect.all([upTo(handle.stdout, maxBytes, tooMuch), tailOf(handle.stderr), handle.exitCode], {
    concurrency: "unbounded"
  })
  const watched = Effect.andThen(
    Effect.raceFirst(
      ended,
      Effect.andThen(Effect.repeat(checkSize(context), Schedule.spaced(LOOK_EVERY)), Effect.never)
    ),
    (all) => Effect.as(checkSize(context), all)
  )
  const [printed, said, code] = yield* (options.grows === true ? watched : ended).pipe(
    Effect.catchTag("PlatformError", (error) =>
      Effect.fail(new GitFailed({ reason: `git ended early: ${printable(error.reason.message, 120)}` }))
    )
  )
  if (code !== 0) return yield* new GitFailed({ reason: reasonOf(said, code, context) })
  return printed
}, Effect.scoped)

const LOOK_EVERY = "100 millis"

/** Returns the bytes of the files below a folder; files that vanish count as 0. */
const folderBytes = Effect.fnUntraced(function* (folder: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const names = yield* Effect.orElseSucceed(fs.readDirectory(folder, { recursive: true }), () => [])
  const sizes = yield* Effect.forEach(names, (name) =>
    fs.stat(path.join(folder, name)).pipe(
      Effect.map(({ size }) => Number(size)),
      Effect.orElseSucceed(() => 0)
    )
  )
  return sizes.reduce((sum, size) => sum + size, 0)
})

const checkSize = Effect.fnUntraced(function* ({ directory, maxBytes }: GitContext) {
  if ((yield* folderBytes(directory)) <= maxBytes) return
  return yield* new GitFailed({
    reason: `it takes more than ${Math.floor(maxBytes / 1_048_576)} MiB, the bound of MUSTER_SOURCES_MAX_MIB; fetch a smaller repository, or raise the bound`
  })
})

const notStarted = (error: PlatformError.PlatformError) =>
  new GitFailed({
    reason:
      error.reason._tag === "NotFound"
        ? "git is not installed; install it (Debian: apt-get install git), then reload"
        : `git cannot be started (${error.reason._tag})`
  })

const upTo = Effect.fnUntraced(function* (
  stream: Stream.Stream<Uint8Array, PlatformError.PlatformError>,
  maxBytes: number,
  tooMuch: string
) {
  const chunks: Array<Uint8Array> = []
  let size = 0
  yield* Stream.runForEach(stream, (chunk) => {
    size += chunk.length
    chunks.push(chunk)
    return size > maxBytes ? Effect.fail(new GitFailed({ reason: tooMuch })) : Effect.void
  })
  return Buffer.concat(chunks, size)
})

const tailOf = (stream: Stream.Stream<Uint8Array, PlatformError.PlatformError>) =>
  stream.pipe(
    Stream.decodeText,
    Stream.runFold(
      () => "",
      (text, chunk) => (text + chunk).slice(-MAX_ERROR_BYTES)
    )
  )

/** Lines that git adds to every failure of the remote. */
const COMMONPLACES =
  /^(?:Could not read from remote repository\.|Please make sure you have the correct access rights|and the repository exists\.)$/

/** Messages of git, its servers and git hosts about a missing repository. */
const NO_REPOSITORY =
  /does not appear to be a git repository|repository '[^']*' not found|is this a git repository\?|^ERROR: Repository not found/im

/** Returns a sentence for a failure of git's command line, settings or address. */
const known = (said: string, { address, authorization }: GitContext): string | undefined => {
  if (/could not read (?:Username|Password)|Authentication failed/.test(said)) {
    return authorization === undefined
      ? "the server asks for a login; set `token_env` or `token_file`"
      : "the server refuses the token"
  }
  if (said.includes("dubious ownership")) {
    return "another user owns the repository; make the user that runs this service its owner, or serve it over https or ssh"
  }
  if (NO_REPOSITORY.test(said)) {
    const where = address.protocol === "file" ? "the path that its `url` names" : address.url
    return `no repository at ${printable(where, 200)}`
  }
  return undefined
}

const reasonOf = (said: string, code: number, context: GitContext): string => {
  const sentence = known(said, context)
  if (sentence !== undefined) return sentence
  const all = said
    .split(/[\r\n]+/)
    .map((line) => line.trim().replace(/^(?:fatal|error): /, ""))
    .filter((line) => line !== "" && !/^(?:hint|warning):/.test(line))
  const specific = all.filter((line) => !COMMONPLACES.test(line))
  const lines = (specific.length === 0 ? all : specific).slice(-3)
  return lines.length === 0 ? `git ended with ${code}` : printable(clean(lines.join("; "), context), 300)
}

/** Removes secrets and paths of this host from a text. */
const clean = (text: string, { address, directory, secrets }: GitContext): string => {
  const local = address.protocol === "file" ? [address.url, address.url.replace(/^file:\/\//i, "")] : []
  let cleaned = text
  for (const secret of secrets) cleaned = cleaned.replaceAll(secret, "***")
  for (const path of local) cleaned = cleaned.replaceAll(path, "the repository")
  return cleaned.replaceAll(directory, "the copy")
}
