/** Environment of what the daemon starts: little of its own, and never a secret of the service. Pure. */
import { dirname } from "node:path"

export interface ChildEnvOptions {
  /** Where variables are taken from: the environment of the service. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Further variables to hand on: names, or beginnings of names such as `JAVA_*`. */
  readonly pass_env: ReadonlyArray<string>
}

const PATH_WHERE_NONE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/** What of it also means something in a container: no search path, and no path of this machine. */
export const containerEnv = (options: ChildEnvOptions): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(inheritedEnv(options)).filter(([name, value]) => name !== "PATH" && !value.startsWith("/"))
  )

const secret = (name: string) => name.startsWith("MUSTER_") || name === "APP_ADMIN_API_KEY"

const passes = (name: string, patterns: ReadonlyArray<string>) =>
  patterns.some((pattern) =>
    pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern
  )

/** What every process gets. Names that carry the service's own settings are not handed on even when asked for. */
export const inheritedEnv = (options: ChildEnvOptions): Readonly<Record<string, string>> => {
  const { environment, pass_env } = options
  const env: Record<string, string> = {
    PATH: `${dirname(process.execPath)}:${environment.PATH ?? PATH_WHERE_NONE}`,
    LANG: environment.LANG ?? "C.UTF-8"
  }
  if (environment.TZ !== undefined) env.TZ = environment.TZ
  for (const [name, value] of Object.entries(environment)) {
    if (value !== undefined && !secret(name) && name !== "PATH" && passes(name, pass_env)) env[name] = value
  }
  return env
}
