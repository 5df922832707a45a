import { readFileSync } from "node:fs"
import { Schema } from "effect"

const Package = Schema.fromJsonString(Schema.Struct({ version: Schema.String }))

/** The version of the package, for `GET /api/system` and `muster --version`. */
export const version: string = Schema.decodeSync(Package)(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
).version
