/** Settings and their reading from the environment. No other module reads it. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs"
import { Config, Data, Effect, Option } from "effect"
import type { SettingView } from "../../contract/domain/Node.ts"
import { StartError } from "./StartError.ts"

const LARGEST_SECRET = 64 * 1024

const codeOf = (cause: unknown): string => {
  const said = cause instanceof Error ? cause.message : String(cause)
  // The system's sentence repeats the path.
  return said.replace(/, \w+ '.*'$/s, "")
}

/** Reads the bytes of the file; returns a text if it cannot be used, with the reason. */
const contents = (path: string): Buffer | string => {
  // Non-blocking: opening a pipe would wait for a writer.
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stats = fstatSync(descriptor)
    if (!stats.isFile()) return "is not a regular file"
    if (stats.size > LARGEST_SECRET) return `has ${stats.size} bytes, and may have ${LARGEST_SECRET}`
    return readFileSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Reads the file that a setting names. @error StartError missing, unreadable, no regular file, or over 64 KiB */
export const readSecretBytes = Effect.fnUntraced(function* (setting: string, path: string) {
  const found = yield* Effect.try({
    try: () => contents(path),
    catch: (cause) => new StartError({ message: `${setting}: ${path} cannot be read (${codeOf(cause)})` })
  })
  if (typeof found !== "string") return found
  return yield* new StartError({ message: `${setting}: ${path} ${found}` })
})

/** Reads a secret of one line from a file. @error StartError as {@link readSecretBytes}, or not exactly one line */
const readSecretFile = Effect.fnUntraced(function* (setting: string, path: string) {
  const text = (yield* readSecretBytes(setting, path)).toString("utf8").replace(/[\r\n]+$/, "")
  const wrong = text === "" ? "is empty" : /[\r\n\0]/.test(text) ? "holds more than one line" : undefined
  if (wrong === undefined) return text
  return yield* new StartError({ message: `${setting}: ${path} ${wrong}` })
})

/** A setting that cannot be used; its message is the line with which the start fails. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{
  readonly name: string
  readonly value: string
  readonly may: string
  readonly wrong?: string | undefined
}> {
  override get message() {
    const wrong = this.wrong === undefined ? "" : `: ${this.wrong}`
    return `${this.name} is ${JSON.stringify(this.value)}${wrong}; it may be ${this.may}`
  }
}

/** One setting. `read` returns undefined for an invalid text. */
export interface Setting<A> {
  readonly name: string
  readonly standard: string
  readonly meaning: string
  readonly may: string
  readonly read: (text: string) => A | undefined
  readonly wrong?: (text: string) => string | undefined
  /** Returns the form of an invalid value for messages. Default: all of it, or nothing of a secret. */
  readonly show?: (text: string) => string
  /** Whether the value is a secret: `<name>_FILE` may name a file with it. */
  readonly secret?: true
}

type Kind<A> = Pick<Setting<A>, "may" | "read" | "show" | "wrong">

/** Begins a setting with its default and the kind of its values; `means` completes it. */
export const setting = <A>(name: string, standard: string, kind: Kind<A>) => ({
  means: (meaning: string): Setting<A> => ({ name, standard, meaning, ...kind })
})

/** Begins a secret setting: no message shows it, and {@link fileForm} may name a file instead. */
export const secret = <A>(name: string, standard: string, kind: Kind<A>) => ({
  means: (meaning: string): Setting<A> => ({
    show: () => "…",
    ...setting(name, standard, kind).means(meaning),
    secret: true
  })
})

export const fileForm = (name: string): string => `${name}_FILE`

type SettingValue<S> = S extends Setting<infer A> ? A : never

/** The text of a variable, if set. An empty variable counts as unset, as in compose and unit files. */
const variable = (name: string) =>
  Config.option(Config.String(name)).pipe(
    Effect.catch(() => Effect.succeed(Option.none<string>())),
    Effect.map((given) => Option.getOrUndefined(given) || undefined)
  )

/** Returns a value without the user and the password of each address in it. */
const withoutUser = (value: string): string => value.replace(/(:\/\/)[^/?#\s]*@/g, "$1…@")

const textOf = Effect.fnUntraced(function* ({ name, secret }: Setting<unknown>) {
  const given = yield* variable(name)
  const file = secret === true ? yield* variable(fileForm(name)) : undefined
  if (file === undefined) {
    return {
      name,
      text: given,
      source: given === undefined ? ("default" as const) : ("environment" as const)
    }
  }
  if (given !== undefined) {
    return yield* new StartError({ message: `${name} and ${fileForm(name)} are both set: unset one of them` })
  }
  return {
    name: fileForm(name),
    text: yield* readSecretFile(fileForm(name), file),
    source: "file" as const
  }
})

const read = Effect.fnUntraced(function* <A>(one: Setting<A>) {
  const { name, text } = yield* textOf(one)
  const value = text ?? one.standard
  const result = one.read(value)
  if (result === undefined) {
    return yield* new InvalidSetting({
      name,
      value: one.show?.(value) ?? withoutUser(value),
      may: one.may,
      wrong: one.wrong?.(value)
    })
  }
  return result
})

/** Reads settings by their names here; fails with the first invalid one. */
export const readAll = <S extends Record<string, Setting<unknown>>>(all: S) =>
  // Effect.all keeps the names; Object.entries loses the type of each value.
  Effect.all(Object.fromEntries(Object.entries(all).map(([key, one]) => [key, read(one)])), {
    concurrency: 1
  }) as Effect.Effect<{ readonly [K in keyof S]: SettingValue<S[K]> }, InvalidSetting | StartError>

/** Returns settings with the origins of their values, and without secrets. */
export const viewAll = (all: Readonly<Record<string, Setting<unknown>>>) =>
  Effect.forEach(Object.values(all), (one) =>
    Effect.map(textOf(one), ({ name, source, text }): SettingView => {
      const value = text ?? one.standard
      const isHidden = one.secret === true && source !== "default"
      return { name, source, value: isHidden ? null : withoutUser(value) }
    })
  )
