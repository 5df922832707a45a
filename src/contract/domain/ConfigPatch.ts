import { Schema } from "effect"

/** Parsers of config files (spec 4.9). */
export const ConfigParser = Schema.Literals(["properties", "yaml", "json", "toml", "ini", "xml", "file"])
export type ConfigParser = typeof ConfigParser.Type

/** Names of parsers; `yml` is the name of `yaml` in files for SLS and Pterodactyl. */
export const ParserName = Schema.Literals([...ConfigParser.literals, "yml"])

export const parserOf = (name: typeof ParserName.Type): ConfigParser => (name === "yml" ? "yaml" : name)

/** The values to set in one file: keys nested or dotted, `*` for every element. Values keep their YAML type. */
export const ConfigPatch = Schema.Struct({
  parser: ConfigParser,
  find: Schema.Record(Schema.String, Schema.Json)
}).annotate({ identifier: "ConfigPatch" })
export type ConfigPatch = typeof ConfigPatch.Type

export const ConfigPatches = Schema.Record(Schema.String, ConfigPatch)
export type ConfigPatches = typeof ConfigPatches.Type
