/** What a setting is, and how settings are read from the environment: nothing else looks at it. */
import { Config, Data, Effect, Option } from "effect"
import { StartError } from "./StartError.ts"
import { readSecretFile } from "./secretFile.ts"

/** A setting that cannot be used; its message is the one line that the start stops with. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{
  readonly name: string
  readonly value: string
  readonly may: string
  /** What is wrong in it, where that can be said. */
  readonly wrong?: string | undefined
}> {
  override get message() {
    const wrong = this.wrong === undefined ? "" : `: ${this.wrong}`
    return `${this.name} is ${JSON.stringify(this.value)}${wrong}; it may be ${this.may}`
  }
}

/** One setting. `read` answers undefined for text that it may not be. */
export interface Setting<A> {
  readonly name: string
  readonly standard: string
  readonly meaning: string
  readonly may: string
  readonly read: (text: string) => A | undefined
  /** What is wrong in text that it may not be, where that can be said. */
  readonly wrong?: (text: string) => string | undefined
  /** What is shown of a wrong value; without it, all, or nothing of a secret. */
  readonly show?: (text: string) => string
  /** Whether the value is a secret: `<name>_FILE` may name a file with it. */
  readonly secret?: true
}

export const setting = <A>(
  name: string,
  standard: string,
  meaning: string,
  kind: Pick<Setting<A>, "may" | "read" | "show" | "wrong">
): Setting<A> => ({ name, standard, meaning, ...kind })

/** A setting with a secret in it: no message shows it, and {@link fileForm} names a file in its place. */
export const secret = <A>(...setting_: Parameters<typeof setting<A>>): Setting<A> => ({
  show: () => "…",
  ...setting(...setting_),
  secret: true
})

/** Name of the setting that names a file with the value of a secret one. */
export const fileForm = (name: string): string => `${name}_FILE`

export type SettingValue<S> = S extends Setting<infer A> ? A : never

/** Text of a variable; undefined where it is unset. An empty one counts as unset, as in compose and unit files. */
const variable = (name: string) =>
  Config.option(Config.String(name)).pipe(
    Effect.catch(() => Effect.succeed(Option.none<string>())),
    Effect.map((given) => Option.getOrUndefined(given) || undefined)
  )

/** Text of a setting, and the variable that it comes from. */
const textOf = Effect.fnUntraced(function* ({ name, secret }: Setting<unknown>) {
  const given = yield* variable(name)
  const file = secret === true ? yield* variable(fileForm(name)) : undefined
  if (file === undefined) return { name, text: given }
  if (given !== undefined) {
    return yield* new StartError({ message: `${name} and ${fileForm(name)} are both set: unset one of them` })
  }
  return { name: fileForm(name), text: yield* readSecretFile(fileForm(name), file) }
})

const read = Effect.fnUntraced(function* <A>(one: Setting<A>) {
  const { name, text } = yield* textOf(one)
  const value = text ?? one.standard
  const result = one.read(value)
  if (result === undefined) {
    return yield* new InvalidSetting({
      name,
      value: one.show?.(value) ?? value,
      may: one.may,
      wrong: one.wrong?.(value)
    })
  }
  return result
})

/** The values of settings, by their names here; the first that cannot be used fails. */
export const readAll = <S extends Record<string, Setting<unknown>>>(all: S) =>
  // Effect.all keeps the names; that each value is of its own setting's type is lost in Object.entries.
  Effect.all(Object.fromEntries(Object.entries(all).map(([key, one]) => [key, read(one)])), {
    concurrency: 1
  }) as Effect.Effect<{ readonly [K in keyof S]: SettingValue<S[K]> }, InvalidSetting | StartError>
