import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { registryOf } from "../../../../src/daemon/runtime/docker/registryAuth.ts"
import { engineNote, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { imageRegistry } from "../../../support/imageRegistry.ts"
import { bench, folder, put } from "./support.ts"

const base64 = (text: string) => Buffer.from(text).toString("base64")

describe.runIf(withEngine)(`Docker runtime: registries with authentication${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect(
      "images are pulled with the credentials of the config file; no message contains the password",
      () =>
        Effect.gen(function* () {
          const { docker } = yield* TestEngine
          const user = { name: "me", password: "pass-word-of-mine" }
          const { image } = yield* imageRegistry({ user })
          yield* Effect.addFinalizer(() =>
            Effect.ignore(Effect.tryPromise(() => docker.getImage(image).remove({ force: true })))
          )
          const config = join(yield* folder, "config.json")
          const { runtime } = yield* bench({ pull: "if-not-present", config })
          let log = ""
          const prepare = runtime.ensureImage({ image, runtimes: ["docker"] }, (bytes) => {
            log += Buffer.from(bytes).toString()
          })
          const withPassword = (password: string) =>
            put(
              config,
              JSON.stringify({ auths: { [registryOf(image)]: { auth: base64(`me:${password}`) } } })
            )

          const anonymous = yield* Effect.flip(prepare)
          assert.match(
            anonymous.message,
            /cannot be pulled: .*(no basic auth credentials|unauthorized|authentication)/i
          )
          yield* withPassword("wrong-pass-word")
          const wrong = yield* Effect.flip(prepare)
          assert.include(wrong.message, "cannot be pulled")
          yield* withPassword(user.password)
          yield* prepare
          assert.include(log, "Pull complete")
          assert.notInclude(log + anonymous.message + wrong.message, "pass-word")
        }).pipe(Effect.scoped)
    )
  })
})
