import { commandSettings } from "../shared/config/command.ts"
import { nodeSettings } from "../shared/config/node.ts"
import type { Setting } from "../shared/config/Setting.ts"
import { settings } from "../shared/config/service.ts"

/** The settings of all commands; some are there several times. */
export const allSettings: ReadonlyArray<Setting<unknown>> = [settings, nodeSettings, commandSettings].flatMap(
  (some) => Object.values(some)
)

const secrets = allSettings.flatMap(({ name, secret }) => (secret === true ? [name] : []))

const taken = new Map<string, string | undefined>()

/** Returns a variable with a secret, and removes it from `process.env`, so that no child process inherits it. */
export const takeVariable = (name: string): string | undefined => {
  const { [name]: value } = process.env
  if (value !== undefined) {
    taken.set(name, value)
    Reflect.deleteProperty(process.env, name)
  }
  return taken.get(name)
}

/** Returns the environment at the start, and removes the values of secret settings from `process.env`. */
export const takeSecrets = (): Record<string, string> => {
  const found = Object.entries(process.env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const]
  )
  for (const name of secrets) takeVariable(name)
  return Object.fromEntries(found)
}
