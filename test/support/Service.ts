/** The real command as a child process, and a plain HTTP client for it. */
import { type ChildProcess, spawn } from "node:child_process"
import { join, resolve } from "node:path"
import { Data, Effect, type Scope } from "effect"
import { eventually } from "./eventually.ts"

import { temporaryFolder } from "./temporaryFolder.ts"
import { databaseEnv } from "./testDatabase.ts"

const root = resolve(import.meta.dirname, "../..")
const main = join(root, "dist/main.js")

/**
 * Prefixes a command line so that it runs in a namespace of `netns.ts`; without a namespace the command is unchanged.
 */
export const insideOf = (
  namespace: string | undefined,
  command: readonly [string, ...ReadonlyArray<string>]
): readonly [string, ...ReadonlyArray<string>] =>
  namespace === undefined ? command : ["nsenter", `--net=/run/netns/${namespace}`, ...command]

/** Prefixes a command line with a limit of open files; without a limit the command is unchanged. */
export const limitedTo = (
  openFiles: number | undefined,
  command: readonly [string, ...ReadonlyArray<string>]
): readonly [string, ...ReadonlyArray<string>] =>
  openFiles === undefined
    ? command
    : ["/bin/sh", "-c", 'ulimit -n "$0"; exec "$@"', String(openFiles), ...command]

export class ServiceFailed extends Data.TaggedError("ServiceFailed")<{ readonly message: string }> {}

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The body as JSON; fails the test if it is not JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies whose shape they assert
  readonly json: any
}

export interface RequestOptions {
  readonly body?: unknown
  /** Sent unchanged instead of `body`. */
  readonly raw?: string
  readonly headers?: Record<string, string>
  /** `null`: no Authorization header. */
  readonly key?: string | null
  /** Returns the 429 of a rate-limited registration; by default the client waits and retries, as daemons do. */
  readonly once?: boolean
}

export interface Service {
  readonly url: string
  readonly key: string
  readonly dataDir: string
  readonly process: ChildProcess
  /** All output of the process so far. */
  readonly output: () => string
  readonly request: (
    method: string,
    path: string,
    options?: RequestOptions
  ) => Effect.Effect<Answer, ServiceFailed>
  /** Sends a signal and waits until the process has exited. */
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
}

export const adminKey = "test-admin-key-of-thirty-two-chars"

/** Waits until a process has ended. */
export const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
  })

/** Sends SIGTERM, also to a frozen process, then SIGKILL after a timeout. */
export const stopped = (child: ChildProcess) =>
  Effect.sync(() => {
    child.kill("SIGCONT")
    child.kill("SIGTERM")
  }).pipe(
    Effect.andThen(ended(child)),
    Effect.timeoutOrElse({
      duration: "20 seconds",
      orElse: () =>
        Effect.andThen(
          Effect.sync(() => child.kill("SIGKILL")),
          ended(child)
        )
    })
  )

const json = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export const requestTo =
  (url: string, key: string) =>
  (method: string, path: string, options: RequestOptions = {}): Effect.Effect<Answer, ServiceFailed> => {
    const answered = sent(url, key, method, path, options)
    return options.once === true || !path.endsWith("/register")
      ? answered
      : Effect.flatMap(answered, (answer) =>
          answer.status === 429
            ? Effect.delay(requestTo(url, key)(method, path, options), "200 millis")
            : Effect.succeed(answer)
        )
  }

const sent = (
  url: string,
  key: string,
  method: string,
  path: string,
  options: RequestOptions
): Effect.Effect<Answer, ServiceFailed> =>
  Effect.tryPromise({
    try: async (signal) => {
      const body = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body))
      const response = await fetch(`${url}${path}`, {
        method,
        signal,
        headers: {
          ...(options.key === null ? {} : { authorization: `Bearer ${options.key ?? key}` }),
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...options.headers
        },
        ...(body === undefined ? {} : { body })
      })
      const text = await response.text()
      return { status: response.status, headers: response.headers, text, json: json(text) }
    },
    catch: (cause) => new ServiceFailed({ message: `${method} ${path}: ${cause}` })
  })

/** Waits for the line with the address of a service or daemon, and returns its URL. */
export const listeningAt = (child: ChildProcess, output: () => string) =>
  eventually(
    () => {
      const url = /listens on (https?:\/\/[^\s"]+)/.exec(output())?.[1]
      return url ?? child.signalCode ?? child.exitCode
    },
    (seen) => seen !== null,
    "90 seconds"
  ).pipe(
    Effect.mapError(
      ({ message }) => new ServiceFailed({ message: `no listening line ${message}: ${output()}` })
    ),
    Effect.flatMap((seen) =>
      typeof seen === "string" && seen.startsWith("http")
        ? Effect.succeed(seen)
        : Effect.fail(new ServiceFailed({ message: `exited with ${seen}: ${output()}` }))
    )
  )

/**
 * Starts `muster serve` on a free port and waits until it listens.
 *
 * @param options.dataDir a folder that outlives this service, for tests that start it more than once
 * @param options.onSpawn called with the process before it listens
 */
export const startService = (
  options: {
    readonly dataDir?: string
    readonly env?: Record<string, string>
    readonly cwd?: string
    /** The name of its network namespace. */
    readonly namespace?: string
    /** Limit of open files. */
    readonly openFiles?: number
    readonly onSpawn?: (child: ChildProcess) => void
    /** The main module of another version. */
    readonly main?: string
  } = {}
): Effect.Effect<Service, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const dataDir = options.dataDir ?? join(yield* temporaryFolder, "data")
    const database = yield* Effect.mapError(
      databaseEnv(dataDir),
      ({ message }) => new ServiceFailed({ message })
    )
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const [program, ...args] = limitedTo(
          options.openFiles,
          insideOf(options.namespace, [process.execPath, options.main ?? main, "serve"])
        )
        return spawn(program, args, {
          cwd: options.cwd ?? root,
          env: {
            PATH: process.env.PATH ?? "",
            HOME: process.env.HOME ?? "",
            NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS ?? "",
            NODE_OPTIONS: "--max-semi-space-size=8",
            MUSTER_PORT: "0",
            MUSTER_DATA_DIR: dataDir,
            APP_ADMIN_API_KEY: adminKey,
            ...database,
            ...options.env
          },
          stdio: ["ignore", "pipe", "pipe"]
        })
      }),
      stopped
    )
    options.onSpawn?.(child)
    let output = ""
    const collect = (chunk: Buffer) => {
      output += chunk.toString()
    }
    child.stdout?.on("data", collect)
    child.stderr?.on("data", collect)
    const url = yield* listeningAt(child, () => output)
    child.once("exit", (code, signal) => {
      if (child.killed) return
      console.error(`the service at ${url} ended with ${signal ?? code}:\n${output.slice(-4000)}`)
    })
    const key = options.env?.APP_ADMIN_API_KEY ?? adminKey
    return {
      url,
      key,
      dataDir,
      process: child,
      output: () => output,
      request: requestTo(url, key),
      kill: (signal) =>
        Effect.andThen(
          Effect.sync(() => child.kill(signal)),
          ended(child)
        )
    }
  })
