import { randomUUID } from "node:crypto"
import { join } from "node:path"
import { Effect, FileSystem } from "effect"
import { StartError } from "../shared/config/StartError.ts"

const form = /^[A-Za-z0-9._-]{1,64}$/

/** Returns the id of this host's node. The first start makes it and writes it to `<data>/node.id`. */
export const nodeIdentity = Effect.fn("nodeIdentity")(
  function* (dataDir: string) {
    const fs = yield* FileSystem.FileSystem
    const file = join(dataDir, "node.id")
    const kept = (yield* fs.exists(file)) ? (yield* fs.readFileString(file)).trim() : ""
    if (form.test(kept)) return kept
    const made = `node-${randomUUID().slice(0, 8)}`
    yield* fs.writeFileString(`${file}.new`, `${made}\n`, { mode: 0o600 })
    yield* fs.rename(`${file}.new`, file)
    return made
  },
  (effect, dataDir) =>
    Effect.catch(effect, (error) =>
      Effect.fail(
        new StartError({ message: `the id of this node cannot be kept in ${dataDir}: ${error.message}` })
      )
    )
)
