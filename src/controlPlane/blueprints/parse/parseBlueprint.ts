/** Blueprint and mixin files (spec 4.2). */
import { Schema } from "effect"
import {
  boolean,
  type Decoder,
  type Fields,
  fieldsOf,
  json,
  list,
  type Reading,
  record,
  text
} from "./decode.ts"
import { shapes } from "./fields.ts"
import type { BlueprintFile, Composable, MixinFile, Reference } from "./files.ts"
import type { Located } from "./located.ts"
import { definitionId, Line, serverPart } from "./parseServer.ts"
import { statePart } from "./parseState.ts"
import type { Position } from "./problem.ts"

export interface FileContext extends Reading {
  readonly file: string
  readonly position: (at: number) => Position
}

const composable = (fields: Fields<"server" | "state" | "annotations">): Composable => ({
  server: fields.optional("server", serverPart) ?? {},
  state: fields.optional("state", statePart) ?? null,
  annotations: fields.optional("annotations", record(json)) ?? {}
})

const references = (context: FileContext): Decoder<ReadonlyArray<Reference>> =>
  list((node) => {
    const id = definitionId(node, context)
    return id === undefined ? undefined : { id, ...context.position(node.at) }
  })

export const parseBlueprint = (root: Located, context: FileContext): BlueprintFile | undefined => {
  const fields = fieldsOf(root, context, shapes.blueprintFile)
  const header = fields?.required("blueprint", (node) => fieldsOf(node, context, shapes.blueprint))
  const id = header?.required("id", definitionId)
  const name = header?.optional("name", text(Line)) ?? id
  const type = header?.optional("type", text(Line)) ?? ""
  if (fields === undefined) return undefined
  const includes = fields.optional("includes", references(context)) ?? []
  const save = fields.optional("save", boolean) ?? false
  const start = fields.optional("start", boolean)
  const parts = composable(fields)
  if (header === undefined || id === undefined || name === undefined) return undefined
  const at = context.position(header.place("id"))
  return {
    kind: "blueprint",
    file: context.file,
    at,
    id,
    name,
    type,
    includes,
    save,
    ...(start === undefined ? {} : { start }),
    ...parts
  }
}

export const parseMixin = (root: Located, context: FileContext): MixinFile | undefined => {
  const fields = fieldsOf(root, context, shapes.mixinFile)
  const header = fields?.required("mixin", (node) => fieldsOf(node, context, shapes.mixin))
  const id = header?.required("id", definitionId)
  const description = header?.optional("description", text(Schema.String)) ?? ""
  if (fields === undefined) return undefined
  const parents = fields.optional("extends", references(context)) ?? []
  const parts = composable(fields)
  if (header === undefined || id === undefined) return undefined
  const at = context.position(header.place("id"))
  return { kind: "mixin", file: context.file, at, id, description, extends: parents, ...parts }
}
