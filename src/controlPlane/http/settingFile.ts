/** YAML files that a setting names, with secrets in them, in variables or in further files. */
import { readFileSync } from "node:fs"
import { Effect, Schema } from "effect"
import { parseDocument } from "yaml"
import { InvalidRequest } from "../../contract/domain/errors.ts"

const LARGEST = 1024 * 1024

/** Where an entry has its secret: in the file, in a variable of the service, or in another file. */
export interface SecretPlaces {
  readonly inline: string | undefined
  readonly variable: string | undefined
  readonly file: string | undefined
}

/** Returns the reader of the file of a setting. */
export const settingFile = (setting: string, path: string) => {
  const invalid = (why: string) =>
    new InvalidRequest({ detail: `${setting}: ${path}: ${why}`, hint: "Correct the file." })

  const read = (file: string) =>
    Effect.try({
      try: () => readFileSync(file, "utf8"),
      catch: () => invalid(`${file} cannot be read`)
    })

  return {
    invalid,
    /** @error InvalidRequest the file cannot be read, or is not valid */
    decode: Effect.fnUntraced(function* <A>(schema: Schema.Codec<A, unknown>) {
      const text = yield* read(path)
      if (text.length > LARGEST) return yield* invalid("it is larger than 1 MiB")
      const document = parseDocument(text)
      const [problem] = document.errors
      if (problem !== undefined) return yield* invalid(problem.message.split("\n")[0] ?? "")
      const plain = yield* Effect.try({
        try: (): unknown => document.toJS({ maxAliasCount: 100 }),
        catch: (cause) => invalid(cause instanceof Error ? cause.message : String(cause))
      })
      const decoded = Schema.decodeUnknownEffect(schema, { onExcessProperty: "error", errors: "all" })(plain)
      return yield* Effect.mapError(decoded, ({ message }) => invalid(message.replaceAll(/\s+/g, " ")))
    }),
    /** Returns the secret of an entry, if exactly one place is given. */
    secret: Effect.fnUntraced(function* (
      { file, inline, variable }: SecretPlaces,
      variables: (name: string) => string | undefined
    ) {
      if ([inline, variable, file].filter((place) => place !== undefined).length !== 1) return undefined
      const found =
        inline ??
        (variable === undefined ? undefined : variables(variable)) ??
        (file === undefined ? "" : yield* read(file))
      return found.trim()
    }),
    /** @error InvalidRequest two entries have one id */
    refuseTwice: (ids: ReadonlyArray<string>) => {
      const twice = ids.find((id, index) => ids.indexOf(id) !== index)
      return twice === undefined ? Effect.void : Effect.fail(invalid(`${twice} is defined twice`))
    }
  }
}
