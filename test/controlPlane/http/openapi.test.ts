import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { version } from "../../../src/app/version.ts"
import { openApiDocuments } from "../../../src/contract/api/ApplicationApi.ts"

type Json = Readonly<Record<string, unknown>>
const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null

/** All objects in a part of the document. */
const objectsIn = (value: unknown): ReadonlyArray<Json> =>
  isObject(value) ? [value, ...Object.values(value).flatMap(objectsIn)] : []

// Through JSON, as clients get them.
const [newest, older] = openApiDocuments.map(({ make }) => JSON.parse(JSON.stringify(make("1.2.3"))))
const { components, paths } = newest
const objects = [...objectsIn(paths), ...objectsIn(components.schemas)]
const parameterOf = (path: string, name: string) =>
  paths[path].get.parameters.find((parameter: Json) => parameter.name === name).schema

describe("spec 1.10: the documents that the build makes", () => {
  it("they are those of the sources", () => {
    const chunks = resolve(import.meta.dirname, "../../../dist/chunks")
    for (const { make, path } of openApiDocuments)
      assert.strictEqual(readFileSync(join(chunks, path), "utf8"), JSON.stringify(make(version)))
  })
})

describe("spec 1.10: /openapi.json for generators of clients", () => {
  it("every reference has a component, and no name is numbered", () => {
    const names = Object.keys(components.schemas)
    assert.deepStrictEqual(
      names.filter((name) => /_|\d|Encoded/.test(name)),
      []
    )
    for (const { $ref } of objects) {
      const [, kind = "", name = ""] = /^#\/components\/(\w+)\/(\w+)$/.exec(String($ref)) ?? []
      if (typeof $ref === "string") assert.isDefined(components[kind]?.[name], $ref)
    }
  })

  it("a value that may be null has two types; only a reference is in a union with null", () => {
    for (const { anyOf } of objects) {
      if (!Array.isArray(anyOf) || !anyOf.some(({ type }) => type === "null")) continue
      assert.deepStrictEqual(
        anyOf.map((member) => Object.keys(member)),
        [["$ref"], ["type"]]
      )
    }
    assert.deepStrictEqual(components.schemas.Server.properties.name.type, ["string", "null"])
  })

  it("numbers have a width, and times a format", () => {
    for (const { format, type } of objects) {
      if (type === "integer") assert.include(["int32", "int64"], format)
      if (type === "number") assert.strictEqual(format, "double")
    }
    assert.strictEqual(components.schemas.HostInfo.properties.memory_bytes.format, "int64")
    assert.strictEqual(components.schemas.Key.properties.created_at.format, "date-time")
  })

  it("query parameters have the types of their content", () => {
    assert.deepInclude(parameterOf("/api/servers", "limit"), { type: "integer", minimum: 1, maximum: 1000 })
    assert.include(parameterOf("/api/servers/{server}/stats", "update_disk_usage"), { type: "boolean" })
    assert.deepStrictEqual(parameterOf("/api/events", "server_id"), {
      type: "array",
      items: { type: "string" }
    })
  })

  it("the streams of events have the header with which they resume", () => {
    for (const path of ["/api/events", "/api/events/ws", "/api/servers/{server}/events"])
      assert.deepStrictEqual(parameterOf(path, "last-event-id"), { type: "string", pattern: "^\\d{1,15}$" })
  })

  it("the lowest success of an operation is what it returns; a preview is 2XX", () => {
    for (const [path, type] of [
      ["/api/servers", "Server"],
      ["/api/rollouts", "Rollout"]
    ] as const) {
      const { responses } = paths[path].post
      const [lowest = ""] = Object.keys(responses).toSorted()
      assert.strictEqual(
        responses[lowest].content["application/json"].schema.$ref,
        `#/components/schemas/${type}`
      )
      assert.isDefined(responses["2XX"])
    }
  })
})

describe("spec 1.10: /openapi-3.0.json for generators that do not read OpenAPI 3.1", () => {
  const schemas = older.components.schemas
  const all = [...objectsIn(older.paths), ...objectsIn(schemas)]

  it("it has the same operations, parameters and components, but no union of messages", () => {
    assert.strictEqual(older.openapi, "3.0.3")
    assert.deepStrictEqual(older.info.license, { name: "MIT" })
    const { ServerEvent: _, ...others } = components.schemas
    assert.sameMembers(Object.keys(schemas), Object.keys(others))
    const operationsOf = (document: Json) =>
      objectsIn(document.paths).flatMap(({ operationId, parameters }) =>
        operationId === undefined ? [] : [[operationId, objectsIn(parameters).map(({ name }) => name)]]
      )
    assert.deepStrictEqual(operationsOf(older), operationsOf(newest))
  })

  it("no schema has a keyword that OpenAPI 3.0 lacks, and none is a union", () => {
    for (const schema of all) {
      const keys = Object.keys(schema)
      const isSchema = typeof schema.type === "string" || keys.includes("nullable")
      for (const key of ["propertyNames", "patternProperties", "const", "examples", "anyOf", "oneOf"]) {
        if (isSchema) assert.notInclude(keys, key)
      }
      assert.isFalse(Array.isArray(schema.type), JSON.stringify(schema))
      assert.notStrictEqual(schema.type, "null")
      if (keys.includes("$ref")) assert.deepStrictEqual(keys, ["$ref"])
    }
  })

  it("a value that may be null is nullable, also a reference", () => {
    assert.include(schemas.Server.properties.name, { type: "string", nullable: true })
    assert.deepStrictEqual(schemas.NodeDetail.properties.usage, { $ref: "#/components/schemas/NodeUsage" })
    assert.include(schemas.NodeUsage, { type: "object", nullable: true })
    assert.isUndefined(schemas.NodeDetail.nullable)
    assert.deepStrictEqual(schemas.CreateServer.properties.run.enum, [...schemas.RunRule.enum, null])
  })

  it("`nullable` admits null: it has a type beside it, and no other keyword refuses null", () => {
    const nullable = all.filter((schema) => schema.nullable === true)
    assert.isAbove(nullable.length, 50)
    for (const { enum: values, type, ...others } of nullable) {
      assert.isString(type)
      if (Array.isArray(values)) assert.include(values, null)
      assert.notProperty(others, "allOf")
    }
  })

  it("a union of objects is one object with the fields of all", () => {
    const { properties, required } = schemas.BulkOutcomes.additionalProperties
    assert.sameMembers(Object.keys(properties), ["status", "code", "detail", "hint", "request_id"])
    assert.deepStrictEqual([properties.status, required], [{}, ["status"]])
    assert.sameMembers(Object.keys(schemas.RestartState.properties), [
      "attempt",
      "next_at",
      "given_up",
      "reason"
    ])
  })
})
