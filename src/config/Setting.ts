/** What a setting is, and how settings are read from the environment: nothing else looks at it. */
import { Config, Data, Effect, Option } from "effect"

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
  /** What is shown of a wrong value; without it, all. */
  readonly show?: (text: string) => string
}

export const setting = <A>(
  name: string,
  standard: string,
  meaning: string,
  kind: Pick<Setting<A>, "may" | "read" | "show" | "wrong">
): Setting<A> => ({ name, standard, meaning, ...kind })

export type SettingValue<S> = S extends Setting<infer A> ? A : never

const read = Effect.fnUntraced(function* <A>(one: Setting<A>) {
  // An empty variable counts as unset, as it does in compose files and unit files.
  const given = yield* Config.option(Config.String(one.name)).pipe(
    Effect.catch(() => Effect.succeed(Option.none<string>()))
  )
  const value = Option.getOrElse(
    Option.filter(given, (it) => it !== ""),
    () => one.standard
  )
  const result = one.read(value)
  if (result === undefined) {
    return yield* new InvalidSetting({
      name: one.name,
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
  }) as Effect.Effect<{ readonly [K in keyof S]: SettingValue<S[K]> }, InvalidSetting>
