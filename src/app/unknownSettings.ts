import { Effect } from "effect"
import { nearest } from "../contract/domain/nearest.ts"
import { commandSettings } from "../shared/config/command.ts"
import { nodeSettings } from "../shared/config/node.ts"
import { fileForm } from "../shared/config/Setting.ts"
import { settings } from "../shared/config/service.ts"

const known = [
  ...Object.values(settings),
  ...Object.values(nodeSettings),
  ...Object.values(commandSettings)
].flatMap(({ name, secret }) => (secret === true ? [name, fileForm(name)] : [name]))

/** Warns of variables that look like settings and are not: a mistyped setting is never ignored silently. */
export const warnOfUnknownSettings = Effect.suspend(() =>
  Effect.forEach(
    Object.keys(process.env).filter((name) => name.startsWith("MUSTER_") && !known.includes(name)),
    (name) => {
      const meant = nearest(name, known)
      return Effect.logWarning(
        `${name} is not a setting${meant === undefined ? "; docs/settings.md lists them" : `; did you mean ${meant}?`}`
      )
    },
    { discard: true }
  )
)
