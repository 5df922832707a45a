import { assert, describe, it } from "@effect/vitest"
import { Result, Schema, SchemaRepresentation } from "effect"
import { HttpApi } from "effect/http-api"
import * as fc from "fast-check"
import { ApplicationApi, openApiDocuments } from "../../src/api/ApplicationApi.ts"
import { freshSeed } from "../support/random.ts"
import { valuesOf } from "./support/described.ts"

const RUNS = 200

// Through JSON, as clients get it, with the references of JSON Schema.
const { components, paths } = JSON.parse(
  JSON.stringify(openApiDocuments[0].make("1.2.3")).replaceAll("#/components/schemas/", "#/$defs/")
)

/** The rules that `422` explains and the document does not have: a schema has no plain words for them. */
const beyondSchemas = [
  // A length counts UTF-16 code units in the service, and characters in a schema.
  /^Expected a value with a length of at most \d+$/,
  /^Expected a label value without control characters$/,
  /^Expected \d+ to \d+ characters on one line$/,
  /^Expected 0, or a value of at least 1$/,
  /^Expected 0, or a value between 10 and 1000$/,
  /^Expected at least one of blueprint_id, node_id, status, labels, ids$/,
  /^Expected at least one of max_servers, max_memory, max_cpu and max_disk$/,
  /^Expected an http or https URL without a user$/,
  /^Expected k=v, k!=v, k or !k$/,
  /^Expected rights \(allow\) only with the scope/,
  /^Expected servers, blueprints and labels only with the scopes/
]

const codec = (schema: Schema.Top) => Schema.make<Schema.Codec<unknown>>(schema.ast)

/** Returns the reasons for which a schema refuses a value of JSON. */
const refusals = (schema: Schema.Codec<unknown>) => {
  const decode = Schema.decodeUnknownResult(schema, { onExcessProperty: "error", errors: "all" })
  return (value: unknown): ReadonlyArray<string> =>
    Result.match(decode(value), {
      onSuccess: () => [],
      onFailure: (error) => error.message.split("\n").filter((line) => !line.startsWith("  at "))
    })
}

interface Body {
  readonly name: string
  readonly described: fc.Arbitrary<unknown>
  readonly byDocument: (value: unknown) => ReadonlyArray<string>
  readonly byService: (value: unknown) => ReadonlyArray<string>
}

const bodies: Array<Body> = []
HttpApi.reflect(ApplicationApi, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group }) => {
    const path = endpoint.path.replaceAll(/:(\w+)/g, "{$1}")
    const schema = paths[path][endpoint.method.toLowerCase()].requestBody?.content["application/json"].schema
    if (schema === undefined) return
    const imported = SchemaRepresentation.fromJsonSchemaDocument(
      { dialect: "draft-2020-12", schema, definitions: components.schemas },
      { patterns: "apply" }
    )
    // Null is the body that is absent.
    const payloads = [...endpoint.payload.values()].flatMap(({ schemas }) => schemas)
    bodies.push({
      name: `${group.identifier}.${endpoint.identifier}`,
      described: valuesOf(components.schemas)(schema).filter((value) => value !== null),
      byDocument: refusals(codec(imported)),
      byService: refusals(codec(Schema.Union(payloads)))
    })
  }
})

/** Bodies of which the service has accepted, or refused, a value. */
const seen = new Set<string>()

describe("spec 1.10: the document accepts what the service accepts", () => {
  for (const { byDocument, byService, described, name } of bodies) {
    it(`${name}: the document accepts what the service accepts, and more only by the rules above`, () => {
      fc.assert(
        fc.property(described, (generated) => {
          const value: unknown = JSON.parse(JSON.stringify(generated))
          const [document, service] = [byDocument(value), byService(value)]
          seen.add(`${name} ${service.length === 0}`)
          if (service.length === 0) {
            assert.deepStrictEqual(document, [])
          } else if (document.length === 0) {
            for (const reason of service) {
              assert.isTrue(
                beyondSchemas.some((rule) => rule.test(reason)),
                reason
              )
            }
          }
        }),
        { numRuns: RUNS, seed: freshSeed() }
      )
    })
  }

  it("the values of every body are of both kinds", () => {
    assert.isAtLeast(bodies.length, 14)
    assert.sameMembers(
      [...seen],
      bodies.flatMap(({ name }) => [`${name} true`, `${name} false`])
    )
  })
})
