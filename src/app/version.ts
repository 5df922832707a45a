import { readFileSync } from "node:fs"
import { Schema } from "effect"

const Package = Schema.fromJsonString(Schema.Struct({ version: Schema.String }))

/** Version of the package: what `GET /api/system` and `muster --version` say. */
export const version: string = Schema.decodeSync(Package)(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8")
).version
