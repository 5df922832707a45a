import { Effect, Result, Schema } from "effect"
import { JsonColumn, writeRow } from "./rows.ts"

/** Bound of the texts that a column keeps, in characters; the oldest texts are dropped first. */
const MOST_CHARACTERS = 8 * 1024 * 1024
/** The cost of a text beside its own characters. */
const PER_TEXT = 256
const costOf = (text: string): number => text.length + PER_TEXT

/**
 * A column of JSON whose values repeat among rows: equal texts are decoded once and share their value, and a shared value
 * is encoded once. An encoded value is not the one of its text: its keys may have another order.
 */
export const makeSharedColumn = <A extends object, I>(schema: Schema.Codec<A, I>) => {
  const column = JsonColumn(schema)
  const decodeText = Schema.decodeUnknownResult(column)
  const encodeValue = writeRow(column)
  const values = new Map<string, A>()
  const texts = new WeakMap<A, string>()
  let cost = 0

  const keep = (text: string, value: A) => {
    if (text.length > MOST_CHARACTERS / 2) return
    values.set(text, value)
    cost += costOf(text)
    for (const [oldest] of values) {
      if (cost <= MOST_CHARACTERS) break
      values.delete(oldest)
      cost -= costOf(oldest)
    }
  }

  return {
    decode: (text: string): Result.Result<A, Schema.SchemaError> => {
      const known = values.get(text)
      if (known !== undefined) return Result.succeed(known)
      const decoded = decodeText(text)
      if (Result.isSuccess(decoded)) keep(text, decoded.success)
      return decoded
    },
    encode: (value: A): Effect.Effect<string> => {
      const known = texts.get(value)
      if (known !== undefined) return Effect.succeed(known)
      return Effect.map(encodeValue(value), (text) => {
        texts.set(value, text)
        return text
      })
    }
  } as const
}

/** Texts that {@link makeSharedText} keeps. */
const MOST_TEXTS = 20_000

/** Makes a function that returns one string for equal texts: each row that is read has strings of its own. */
export const makeSharedText = () => {
  const texts = new Map<string, string>()
  return <T extends string>(text: T): T => {
    const known = texts.get(text)
    // An equal text has the same type.
    if (known !== undefined) return known as T
    if (texts.size >= MOST_TEXTS) texts.clear()
    texts.set(text, text)
    return text
  }
}
