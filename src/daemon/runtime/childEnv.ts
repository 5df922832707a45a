/** The environment of the daemon's child processes, without secrets of the service. Pure. */
import { dirname } from "node:path"

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
