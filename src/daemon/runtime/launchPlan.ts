/** The command line and environment of processes, without secrets of the service. Pure. */
import { dirname } from "node:path"
import { Result } from "effect"
import { splitWords } from "../../contract/domain/commandLine.ts"
import type { RuntimeKind } from "../../contract/domain/Node.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { contextOf, expand, type PlaceholderContext } from "../configPatch/placeholders.ts"

/** The command line and environment of a server, with placeholders expanded. */
export interface LaunchPlan {
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
  readonly context: PlaceholderContext
}

/** Returns the process of a server. Words are split before placeholders expand; a leading `exec` is dropped. */
export const launchPlan = (spec: ServerSpec): Result.Result<LaunchPlan, string> => {
  const context = contextOf(spec)
  if (Result.isFailure(context)) return Result.fail(`env: ${context.failure.message}`)
  const split = splitWords(spec.definition.process.invocation)
  if ("invalid" in split) return Result.fail(`invocation: ${split.invalid}`)
  const words: Array<string> = []
  for (const word of split.words[0] === "exec" ? split.words.slice(1) : split.words) {
    const expanded = expand(word, context.success)
    if (Result.isFailure(expanded)) return Result.fail(`invocation: ${expanded.failure.message}`)
    if (expanded.success.includes("\0")) return Result.fail("invocation: it contains a NUL character")
    words.push(expanded.success)
  }
  const startup = expand(spec.definition.process.invocation, context.success)
  const [file, ...args] = words
  if (file === undefined || file === "") return Result.fail("invocation: it is empty")
  if (file.startsWith("-")) return Result.fail(`invocation: ${file} is not a program`)
  const env = { ...startupOf(startup), ...context.success.env }
  return Result.succeed({ argv: [file, ...args], env, context: context.success })
}

/** The longest `STARTUP`, in bytes: the kernel limits each variable. */
const MOST_STARTUP = 32 * 1024

/** Returns the variable with the command line as one text, which some images for SLS and Pterodactyl read. */
const startupOf = (startup: Result.Result<string, unknown>): Readonly<Record<string, string>> =>
  Result.isSuccess(startup) && Buffer.byteLength(startup.success) <= MOST_STARTUP
    ? { STARTUP: startup.success.trim() }
    : {}

/** Returns the specification as the process sees it: a container listens on all its addresses. */
export const specFor = (kind: RuntimeKind, spec: ServerSpec): ServerSpec =>
  kind === "process"
    ? spec
    : {
        ...spec,
        allocations: {
          ...spec.allocations,
          default: { ...spec.allocations.default, ip: "0.0.0.0" }
        }
      }

export interface ChildEnvOptions {
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Names of further variables, or prefixes such as `JAVA_*`. */
  readonly passEnv: ReadonlyArray<string>
}

const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/** Returns the variables for containers: without the search path and host paths. */
export const containerEnv = (options: ChildEnvOptions): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(inheritedEnv(options)).filter(([name, value]) => name !== "PATH" && !value.startsWith("/"))
  )

const isSecret = (name: string) => name.startsWith("MUSTER_") || name === "APP_ADMIN_API_KEY"

const matches = (name: string, patterns: ReadonlyArray<string>) =>
  patterns.some((pattern) =>
    pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern
  )

/** Returns the variables of every process. Settings of the service are never passed on. */
export const inheritedEnv = (options: ChildEnvOptions): Readonly<Record<string, string>> => {
  const { environment, passEnv } = options
  const env: Record<string, string> = {
    PATH: `${dirname(process.execPath)}:${environment.PATH ?? DEFAULT_PATH}`,
    LANG: environment.LANG ?? "C.UTF-8"
  }
  if (environment.TZ !== undefined) env.TZ = environment.TZ
  for (const [name, value] of Object.entries(environment)) {
    if (value !== undefined && !isSecret(name) && name !== "PATH" && matches(name, passEnv)) env[name] = value
  }
  return env
}
