/** Opens the files of a server for a user in its own process, for tests that kill it: `node openChild.ts <JSON>`. */
import { Context, Effect, Layer } from "effect"
import { InstanceFiles } from "../../../src/daemon/files/InstanceFiles.ts"
import { specOf } from "../support.ts"
import { ownUser } from "./scene.ts"

const { folder, uid, ...options } = JSON.parse(process.argv[2] ?? "{}")

const main = Effect.gen(function* () {
  const files = Context.get(yield* Layer.build(InstanceFiles.layer(options)), InstanceFiles)
  yield* files.open(folder, specOf(), "process", ownUser(uid))
})

Effect.runFork(Effect.scoped(main))
