/** Shapes the OpenAPI document that Effect derives, so that generators make plain clients of it. */
import { Record } from "effect"
import { reasonPhrases } from "../../domain/ApiError.ts"
import { eventName, Topic } from "../../domain/ServerEvent.ts"
import {
  fieldsOf,
  isNull,
  isNullable,
  isObject,
  type JsonObject,
  mapValues,
  plain,
  replacements,
  rewrite,
  SCHEMAS,
  schemaRef,
  withWidest
} from "./schemas.ts"

/** The meaning of each status with which a request fails (spec 1.4). */
const meanings: Readonly<Record<string, string>> = {
  401: "The key is missing, unknown, revoked or expired.",
  403: "The key lacks the scope or right that `detail` names.",
  404: "The thing that the request names does not exist, or the key may not read it.",
  409: "The request does not fit the current state.",
  410: "The cursor is older than the retained journal; `hint` has the next step.",
  412: "A file is not as the condition of the request says; nothing was changed.",
  413: "The body is larger than the service accepts.",
  416: "The file has none of the requested bytes; `Content-Range` has its size.",
  422: "The request cannot be read; `detail` has the reasons.",
  423: "Another request sends the bytes of the upload.",
  426: "The path speaks WebSocket only.",
  429: "Too many requests; `Retry-After` has the seconds to wait.",
  460: "The bytes do not have the announced checksum; they were discarded.",
  500: "The service failed; its log has the cause under `request_id`.",
  502: "The node, or a git repository of definitions, returned an error.",
  503: "The service cannot carry out the request now; `hint` says whether anything was changed.",
  504: "The request took too long.",
  507: "The disk of the database is full; nothing was changed."
}

/** The body of every failure (spec 1.4). */
const ErrorBody = {
  type: "object",
  description: "The body of every failure.",
  properties: {
    code: { type: "string", enum: Object.keys(reasonPhrases), description: "The HTTP status." },
    status: { type: "string", enum: Object.values(reasonPhrases), description: "Its reason phrase." },
    detail: { type: "string", description: "Why the request failed, with the value." },
    hint: { type: "string", description: "The next step." },
    request_id: { type: "string", description: "The id of the request, as in the log of the service." }
  },
  required: ["code", "status", "detail", "hint", "request_id"],
  additionalProperties: false
}

const errorResponses = Record.map(meanings, (description) => ({
  description,
  content: { "application/json": { schema: schemaRef("Error") } }
}))

/** A stream is text to generated clients; `ServerEvent` is the shape of its messages. */
const streamResponse = {
  description: "Server-Sent Events; `data` of each is a `ServerEvent` as JSON.",
  content: { "text/event-stream": { schema: { type: "string" } } }
}

const contentOf = (part: unknown): JsonObject => fieldsOf(fieldsOf(part).content)

/** Returns the responses of an operation. Clients return the lowest success, so the preview of a dry run is `2XX`. */
const plainResponses = (responses: JsonObject): JsonObject => {
  const done = ["201", "202"].find((status) => status in responses)
  const isPreview =
    done !== undefined &&
    JSON.stringify(contentOf(responses[200])) !== JSON.stringify(contentOf(responses[done]))
  return Object.fromEntries(
    Object.entries(responses).map(([status, response]) => {
      if (status in meanings) return [status, { $ref: `#/components/responses/${status}` }]
      if ("text/event-stream" in contentOf(response)) return [status, streamResponse]
      return [status === "200" && isPreview ? "2XX" : status, response]
    })
  )
}

/** Moves what describes a parameter from its schema to the parameter, where tools look for it. */
const plainParameter = (parameter: unknown): unknown => {
  if (!isObject(parameter) || !isObject(parameter.schema)) return parameter
  const { explode, description, ...schema } = parameter.schema
  // The code that oapi-codegen writes uses the name `server` for a variable.
  const named = parameter.in === "path" && parameter.name === "server" ? { "x-go-name": "ServerId" } : {}
  return { ...parameter, ...named, description, schema, ...(explode === undefined ? {} : { explode }) }
}

const schemaOf = (media: unknown): unknown => fieldsOf(media).schema

/** Returns the content of a body or response with the first member of each union. */
const firstMembers = (part: unknown): JsonObject =>
  mapValues(contentOf(part), (media) => {
    const schema = schemaOf(media)
    return { schema: isObject(schema) && Array.isArray(schema.anyOf) ? schema.anyOf[0] : schema }
  })

/** A body that may be absent is one schema that is not required. */
const plainBody = (body: unknown): JsonObject => {
  const isOptional = Object.values(contentOf(body)).some((media) => isNullable(schemaOf(media)))
  return isOptional ? { content: firstMembers(body), required: false } : fieldsOf(body)
}

const IDS_ONLY = "ids_only"
const isIdsOnly = (parameter: unknown): boolean => isObject(parameter) && parameter.name === IDS_ONLY

/** The response of a list without `ids_only`: generated clients have one type for it. */
const wholeItems = (response: unknown): JsonObject => ({
  ...fieldsOf(response),
  content: firstMembers(response)
})

const plainOperation = (operation: unknown, method: string): unknown => {
  if (!isObject(operation)) return operation
  const parameters: ReadonlyArray<unknown> = Array.isArray(operation.parameters) ? operation.parameters : []
  const { 507: full, ...others } = plainResponses(fieldsOf(operation.responses))
  const responses = method === "get" ? others : { ...others, 507: full }
  const shaped = {
    ...operation,
    parameters: parameters.filter((parameter) => !isIdsOnly(parameter)).map(plainParameter),
    // A route needs a key if it can refuse one.
    security: "401" in responses ? [{ bearer: [] }] : [],
    responses,
    ...(operation.requestBody === undefined ? {} : { requestBody: plainBody(operation.requestBody) })
  }
  return parameters.some(isIdsOnly)
    ? {
        ...shaped,
        description:
          "With `?ids_only=true` the response is an array of ids. The parameter is left out here, so that generated clients have one type of response.",
        responses: { ...responses, 200: wholeItems(responses[200]) }
      }
    : shaped
}

/** The union of messages, which readers tell apart by `Topic`. */
const ServerEvent = {
  oneOf: Topic.literals.map((topic) => schemaRef(eventName(topic))),
  discriminator: {
    propertyName: "Topic",
    mapping: Object.fromEntries(Topic.literals.map((topic) => [topic, SCHEMAS + eventName(topic)]))
  }
}

export const forGenerators = (document: JsonObject): JsonObject => {
  const components = fieldsOf(document.components)
  const schemas = withWidest(fieldsOf(components.schemas))
  const names = replacements(schemas)
  const paths = mapValues(plain(names)(document.paths), (path) => mapValues(path, plainOperation))
  const kept = Object.entries(schemas).filter(([name]) => !(name in names))
  const named = Record.map(Object.fromEntries(kept), plain(names))
  const used = JSON.stringify([paths, named, ServerEvent])
  return {
    ...document,
    servers: [{ url: "/" }],
    paths,
    components: {
      schemas: {
        ...Object.fromEntries(Object.entries(named).filter(([name]) => used.includes(`"${SCHEMAS}${name}"`))),
        ServerEvent,
        Error: ErrorBody
      },
      responses: errorResponses,
      // Lower case: tools then offer a field for the key.
      securitySchemes: { bearer: { type: "http", scheme: "bearer" } }
    }
  }
}

const besideNull = ({ anyOf }: JsonObject): string | undefined => {
  const refs = Array.isArray(anyOf) && anyOf.some(isNull) ? anyOf.flatMap(({ $ref }) => $ref ?? []) : []
  return refs[0]?.slice(SCHEMAS.length)
}

/** Writes null as `nullable`. References have no siblings in 3.0: {@link withNullables} marks their component. */
const withNullable = (schema: JsonObject, components: JsonObject): JsonObject => {
  const { anyOf, type, ...rest } = schema
  if (Array.isArray(type)) return { ...rest, type: type.find((name) => name !== "null"), nullable: true }
  const name = besideNull(schema)
  if (name === undefined) return schema
  const component = fieldsOf(components[name])
  return component.enum === undefined
    ? schemaRef(name)
    : { ...component, ...rest, nullable: true, enum: [component.enum, null].flat() }
}

/** Returns an object with the fields of several: a field of different types may have any value. */
const withFieldsOf = (members: ReadonlyArray<JsonObject>): JsonObject => {
  const fields = members.flatMap((member) => Object.entries(fieldsOf(member.properties)))
  const isSame = ([name, field]: readonly [string, unknown]) =>
    fields.every(([other, it]) => other !== name || JSON.stringify(it) === JSON.stringify(field))
  const required = Object.keys(Object.fromEntries(fields)).filter((name) =>
    members.every((member) => Array.isArray(member.required) && member.required.includes(name))
  )
  return {
    type: "object",
    properties: Object.fromEntries(fields.map((field) => [field[0], isSame(field) ? field[1] : {}])),
    ...(required.length === 0 ? {} : { required })
  }
}

const asSchemas30 = (components: JsonObject): ((value: unknown) => unknown) =>
  rewrite((schema) => {
    const { anyOf, examples, propertyNames: _, ...rest } = withNullable(schema, components)
    const members = Array.isArray(anyOf)
      ? anyOf.map(({ $ref, ...inline }) =>
          fieldsOf(
            $ref === undefined ? inline : asSchemas30(components)(components[$ref.slice(SCHEMAS.length)])
          )
        )
      : []
    return {
      ...rest,
      ...(members.length === 0 ? {} : withFieldsOf(members)),
      ...(Array.isArray(examples) ? { example: examples[0] } : examples === undefined ? {} : { examples })
    }
  })

/** A component admits null if the document of 3.1, as text, has it beside null anywhere. */
const withNullables = (components: JsonObject, text: string): JsonObject =>
  mapValues(components, (schema, name) =>
    fieldsOf(schema).enum === undefined && text.includes(`${JSON.stringify(schemaRef(name))},{"type":"null"}`)
      ? { ...fieldsOf(schema), nullable: true }
      : schema
  )

/** Returns a document of OpenAPI 3.1 as 3.0, which cannot limit the keys of a map. */
export const asOpenApi30 = (document: JsonObject): JsonObject => {
  const { ServerEvent: _, ...schemas } = fieldsOf(fieldsOf(document.components).schemas)
  const { identifier: _spdx, ...license } = fieldsOf(fieldsOf(document.info).license)
  const { components, ...parts } = mapValues(
    { ...document, components: { ...fieldsOf(document.components), schemas } },
    asSchemas30(schemas)
  )
  return {
    ...parts,
    components: {
      ...fieldsOf(components),
      schemas: withNullables(fieldsOf(fieldsOf(components).schemas), JSON.stringify(document))
    },
    openapi: "3.0.3",
    info: { ...fieldsOf(document.info), license }
  }
}
