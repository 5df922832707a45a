import { Result, Schema } from "effect"
import { RecentMap } from "../../../shared/work/RecentMap.ts"
import { JsonColumn, writeRow } from "./rows.ts"

/** Bound of the texts that a column keeps, in characters. */
const MOST_CHARACTERS = 8 * 1024 * 1024
/** The cost of a text beside its own characters. */
const PER_TEXT = 256

/** A JSON column whose values repeat: equal texts share a decoded value. `share` returns an equal value with parts of others. */
export const makeSharedColumn = <A extends object, I>(
  schema: Schema.Codec<A, I>,
  share: (value: A) => A = (value) => value
) => {
  const column = JsonColumn(schema)
  const decodeText = Schema.decodeUnknownResult(column)
  const values = new RecentMap<string, { readonly value: A; readonly length: number }>(
    MOST_CHARACTERS,
    (_, { length }) => length + PER_TEXT
  )

  return {
    /** Returns the value of a key of {@link decode}, if it is kept. */
    known: (key: string): A | undefined => values.get(key)?.value,
    /** @param key has the same text whenever it is given; without one the text itself */
    decode: (text: string, key = text): Result.Result<A, Schema.SchemaError> => {
      const known = values.get(key)
      if (known !== undefined) return Result.succeed(known.value)
      const decoded = Result.map(decodeText(text), share)
      if (Result.isSuccess(decoded)) {
        values.set(key, { value: decoded.success, length: text.length })
      }
      return decoded
    },
    encode: writeRow(column)
  } as const
}

const MOST_TEXTS = 20_000

/** Makes a function that returns one string for equal texts: each row that is read has strings of its own. */
export const makeSharedText = () => {
  const texts = new RecentMap<string, string>(MOST_TEXTS)
  return <T extends string>(text: T): T => {
    const known = texts.get(text)
    // An equal text has the same type.
    if (known !== undefined) return known as T
    texts.set(text, text)
    return text
  }
}
