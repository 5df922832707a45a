import { assert, describe, it } from "@effect/vitest"
import { openApiDocument } from "../../src/api/ApplicationApi.ts"

type Json = Readonly<Record<string, unknown>>
const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null

/** All objects in a part of the document. */
const objectsIn = (value: unknown): ReadonlyArray<Json> =>
  isObject(value) ? [value, ...Object.values(value).flatMap(objectsIn)] : []

// Through JSON, as clients get it.
const { components, paths } = JSON.parse(JSON.stringify(openApiDocument("1.2.3")))
const objects = [...objectsIn(paths), ...objectsIn(components.schemas)]
const parameterOf = (path: string, name: string) =>
  paths[path].get.parameters.find((parameter: Json) => parameter.name === name).schema

describe("decisions 7: /openapi.json for generators of clients", () => {
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
