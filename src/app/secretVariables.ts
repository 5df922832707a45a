import { commandSettings } from "../config/command.ts"
import { nodeSettings } from "../config/node.ts"
import { settings } from "../config/service.ts"

const secrets = [
  ...Object.values(settings),
  ...Object.values(nodeSettings),
  ...Object.values(commandSettings)
].flatMap(({ name, secret }) => (secret === true ? [name] : []))

const taken = new Map<string, string | undefined>()

/** Value of a variable with a secret. From the first call on `process.env` does not have it, and no child process gets it. */
export const takeVariable = (name: string): string | undefined => {
  const { [name]: value } = process.env
  if (value !== undefined) {
    taken.set(name, value)
    Reflect.deleteProperty(process.env, name)
  }
  return taken.get(name)
}

/** The environment as the process was started with; `process.env` has no value of a secret setting any more. */
export const takeSecrets = (): Record<string, string> => {
  const found = Object.entries(process.env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const]
  )
  for (const name of secrets) takeVariable(name)
  return Object.fromEntries(found)
}
