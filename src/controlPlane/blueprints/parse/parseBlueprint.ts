/** Blueprint and mixin files (spec 4.2). */
import { Result, Schema } from "effect"
import {
  type BackupRule,
  BackupTargetId,
  type KeepRule,
  KeptCount
} from "../../../contract/domain/BackupTarget.ts"
import { FileRules } from "../../../contract/domain/Files.ts"
import {
  boolean,
  type Decoder,
  json,
  list,
  type Mapping,
  mapping,
  number,
  record,
  refined,
  required,
  text,
  withDefault,
  word,
  written
} from "./decode.ts"
import type { BlueprintFile, MixinFile, Reference } from "./files.ts"
import type { Origin, Position } from "./located.ts"
import { schedules } from "./parseSchedules.ts"
import { definitionId, Line, serverPart } from "./parseServer.ts"
import { type StatePart, statePart } from "./parseState.ts"
import { filePattern } from "./paths.ts"

export const positionOf = ({ column, line }: Origin): Position => ({ line, column })

const references = withDefault(
  list<Reference>((node, reading) => {
    const id = definitionId(node, reading)
    return id === undefined ? undefined : { id, ...positionOf(reading.origin(node.at)) }
  }),
  []
)

/** The limit of patterns in one list of a blueprint, including the patterns of its mixins. */
const MOST_PATTERNS = 100

/** Returns why there are too many patterns, if there are. */
export const tooManyPatterns = ({ length }: ReadonlyArray<string>): string | undefined =>
  length > MOST_PATTERNS ? `expected at most ${MOST_PATTERNS} patterns, found ${length}` : undefined

const patternsBy = (read: (pattern: string) => ReturnType<typeof filePattern>) =>
  refined(list(refined(text(Schema.String, "a pattern"), read), "patterns of paths"), (found) => {
    const many = tooManyPatterns(found)
    return many === undefined ? Result.succeed(found) : Result.fail(many)
  })

const patterns = patternsBy(filePattern)

export const filesPart: Mapping<FileRules> = mapping("files.", {
  deny: patterns,
  read_only: patterns,
  volumes: word(FileRules.fields.volumes.schema.literals),
  mounts: word(FileRules.fields.mounts.schema.literals)
})

/** `logs/` is the folder `logs`. */
const excluded = patternsBy((pattern) => filePattern(pattern.replace(/(.)\/+$/, "$1")))

export const keepPart: Mapping<KeepRule> = mapping("backup.keep.", {
  last: number(KeptCount),
  hourly: number(KeptCount),
  daily: number(KeptCount),
  weekly: number(KeptCount),
  monthly: number(KeptCount)
})

export const backupPart: Mapping<BackupRule> = mapping("backup.", {
  exclude: excluded,
  keep: keepPart,
  target: text(BackupTargetId)
})

const parts = {
  server: withDefault(serverPart, {}),
  state: withDefault<StatePart | null>(statePart, null),
  files: withDefault(filesPart, {}),
  backup: withDefault(backupPart, {}),
  schedules: withDefault(schedules, []),
  annotations: withDefault(record(json), {})
}

export const blueprint = mapping("blueprint.", {
  id: required(written(definitionId)),
  name: text(Line),
  type: withDefault(text(Line), "")
})

export const blueprintFile = mapping(
  "",
  {
    blueprint: required(blueprint),
    includes: references,
    server: parts.server,
    state: parts.state,
    files: parts.files,
    backup: parts.backup,
    schedules: parts.schedules,
    save: withDefault(boolean, false),
    start: boolean,
    annotations: parts.annotations
  },
  ["world", "traits"]
)

export const parseBlueprint: Decoder<BlueprintFile> = (root, reading) => {
  const decoded = blueprintFile(root, reading)
  if (decoded === undefined) return undefined
  const { blueprint: header, ...file } = decoded
  const { at, value: id } = header.id
  return {
    kind: "blueprint",
    file: at.file,
    at: positionOf(at),
    id,
    name: header.name ?? id,
    type: header.type,
    ...file
  }
}

export const mixin = mapping("mixin.", {
  id: required(written(definitionId)),
  description: withDefault(text(Schema.String), "")
})

export const mixinFile = mapping("", { mixin: required(mixin), extends: references, ...parts }, [
  "world",
  "traits"
])

export const parseMixin: Decoder<MixinFile> = (root, reading) => {
  const decoded = mixinFile(root, reading)
  if (decoded === undefined) return undefined
  const { mixin: header, ...file } = decoded
  const { at, value: id } = header.id
  return { kind: "mixin", file: at.file, at: positionOf(at), id, description: header.description, ...file }
}
