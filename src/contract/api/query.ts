/** The query parameters and their descriptions in the API. */
import { Schema, SchemaGetter } from "effect"
import { whyNoPath } from "../domain/Files.ts"
import { labelCondition, MAX_CONDITIONS } from "../domain/Labels.ts"
import { describedAs } from "../domain/optionalInput.ts"

export const text = (description: string) => Schema.optionalKey(Schema.String.annotate({ description }))

const LIST = { type: "array", items: { type: "string" } }

type Described = Parameters<typeof describedAs>[0]

/** A repeatable parameter, which the route checks, and the schema that callers see. */
export const many = (description: string, schema: Described = LIST) =>
  Schema.optionalKey(
    Schema.Union([Schema.String, Schema.Array(Schema.String)]).annotate({
      description,
      ...describedAs(schema)
    })
  )

const textOf = (description: string, schema: Described) =>
  Schema.String.annotate({ description, ...describedAs(schema) })

/** A parameter that matches `pattern`, else 422; an empty text counts as absent. */
export const given = (
  pattern: RegExp,
  expected: string,
  description: string,
  schema: Described = { type: "string", pattern: pattern.source }
) => Schema.optionalKey(textOf(description, schema).check(Schema.isPattern(pattern, { expected })))

/** A text that a function accepts, else 422 with the returned reason; an empty text counts as absent. */
const checkedBy = (whyNot: (text: string) => string | undefined) =>
  Schema.makeFilter((text: string) => (text === "" ? undefined : whyNot(text)))

const quoted = (text: string): string => JSON.stringify(text.slice(0, 200))

export const names = (allowed: ReadonlyArray<string>, description: string) =>
  Schema.optionalKey(
    textOf(description, {
      type: "array",
      items: { type: "string", enum: [...allowed] },
      explode: false
    }).check(
      checkedBy((text) => {
        const unknown = text.split(",").filter((name) => name !== "" && !allowed.includes(name))
        return unknown.length === 0
          ? undefined
          : `expected ${allowed.join(", ")}, got ${unknown.map(quoted).join(", ").slice(0, 300)}`
      })
    )
  )

const whyNotPath = (path: string) => {
  const why = whyNoPath(path)
  if (why === undefined) return undefined
  const server = /^[^/]+:/.test(path) ? ", without a server before it" : ""
  return `expected an absolute path such as /plugins/x.jar${server}: it ${why}`
}

/** An absolute path in an instance; an empty one counts as absent. */
export const filePath = (description: string) =>
  Schema.optionalKey(Schema.String.annotate({ description }).check(checkedBy(whyNotPath)))

/** One or several paths. */
export const filePaths = (description: string) =>
  Schema.optionalKey(
    Schema.Union([Schema.String, Schema.Array(Schema.String)])
      .annotate({ description, ...describedAs(LIST) })
      .check(
        Schema.makeFilter((given) =>
          [given]
            .flat()
            .filter((path) => path !== "")
            .map(whyNotPath)
            .find((why) => why !== undefined)
        )
      )
  )

/** A text of at most `most` UTF-16 code units. */
export const shortText = (most: number, description: string) =>
  Schema.optionalKey(Schema.String.annotate({ description }).check(Schema.isMaxLength(most)))

export const time = (description: string) =>
  Schema.optionalKey(
    Schema.String.annotate({ description, format: "date-time" }).check(
      checkedBy((text) =>
        isTime(text) ? undefined : `expected a time such as 2026-01-31T12:00:00Z, got ${quoted(text)}`
      )
    )
  )

const rfc3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)$/

const isTime = (text: string): boolean => rfc3339.test(text) && !Number.isNaN(Date.parse(text))

export const labels = (description: string) =>
  Schema.optionalKey(
    // Checked as a whole: each form of the parameter would report the same mistake.
    Schema.Union([Schema.String, Schema.Array(Schema.String)])
      .annotate({ description, ...describedAs({ ...LIST, maxItems: MAX_CONDITIONS }) })
      .check(
        Schema.makeFilter((given) => {
          const texts = [given].flat().filter((text) => text !== "")
          if (texts.length > MAX_CONDITIONS) {
            return `expected at most ${MAX_CONDITIONS} conditions, got ${texts.length}`
          }
          const refused = texts.filter((text) => labelCondition(text) === undefined)
          return refused.length === 0
            ? undefined
            : `expected k=v, k!=v, k or !k, got ${refused.map(quoted).join(", ").slice(0, 300)}`
        })
      )
  )

const asFlag = (text: Schema.Codec<string>, standard: boolean) =>
  Schema.optionalKey(
    text.pipe(
      Schema.decodeTo(Schema.Boolean, {
        decode: SchemaGetter.transform((given: string) => (given === "" ? standard : given === "true")),
        encode: SchemaGetter.transform(String)
      })
    )
  )

/** `true` or `false`. @param standard the meaning of an absent parameter */
export const flag = (description: string, standard = false) =>
  asFlag(
    textOf(description, { type: "boolean" }).check(
      Schema.isPattern(/^(?:true|false)?$/, { expected: "true or false" })
    ),
    standard
  )

/** Any text; only `true` is true. */
export const trueOrNot = (description: string) => asFlag(Schema.String.annotate({ description }), false)

export const wholeNumber = (description: string) =>
  given(/^(?:[+-]?\d+)?$/, "a whole number", description, { type: "integer" })

const positive = (description: string) =>
  given(/^(?:0*[1-9]\d*)?$/, "a whole number of at least 1", description, { type: "integer", minimum: 1 })

export const numberBetween = (minimum: number, maximum: number, description: string) =>
  Schema.optionalKey(
    textOf(description, { type: "integer", minimum, maximum }).check(
      Schema.makeFilter(
        (value) =>
          value === "" || (/^\d+$/.test(value) && Number(value) >= minimum && Number(value) <= maximum),
        { expected: `a whole number from ${minimum} to ${maximum}` }
      )
    )
  )

export const oneOf = <const Words extends ReadonlyArray<string>>(words: Words, description: string) =>
  Schema.optionalKey(
    Schema.Literals([...words, ""] as const).annotate({
      description,
      expected: words.join(" | "),
      ...describedAs({ type: "string", enum: [...words] })
    })
  )

/** The parameters of a page of lines; `first` describes the first page. */
export const linePage = (first: string) => ({
  page: positive(`Page of lines, from 1 on; 1, the default, has the ${first}.`),
  per_page: positive("Lines of a page, 1 to 1,000; default 100. More counts as 1,000.")
})
