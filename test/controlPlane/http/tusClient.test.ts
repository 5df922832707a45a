import { randomBytes } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Upload, type UploadOptions } from "tus-js-client"
import { Far, places, scene } from "./support/files.ts"
import { options, service } from "./support/http.ts"

const CHUNK = 256 * 1024

/** Runs an upload to its end, or to its first chunk. */
const uploaded = (contents: Buffer, given: UploadOptions, isBroken: boolean) =>
  Effect.callback<string | null, Error>((resume) => {
    const upload = new Upload(contents, {
      ...given,
      chunkSize: CHUNK,
      retryDelays: null,
      onError: (error) => resume(Effect.fail(error)),
      onSuccess: () => resume(Effect.succeed(upload.url)),
      onChunkComplete: () => {
        if (!isBroken) return
        resume(
          Effect.andThen(
            Effect.promise(() => upload.abort()),
            Effect.succeed(upload.url)
          )
        )
      }
    })
    upload.start()
  })

layer(Layer.provideMerge(Far.layer, service()), options)("tus-js-client", (it) => {
  describe("spec 10.8: tus 1.0", () => {
    it.effect.each(places)("%s: the client continues an upload that another one has begun", (place) =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene(place)
        const text = randomBytes(4 * CHUNK).toString("hex")
        const given: UploadOptions = {
          endpoint: `${api.url}/api/servers/${id}/files/uploads`,
          headers: { Authorization: `Bearer ${api.key}` },
          metadata: { path: "/worlds/world.txt" }
        }
        const uploadUrl = yield* uploaded(Buffer.from(text), given, true)
        assert.strictEqual((yield* files.get("/worlds/world.txt")).status, 404)
        yield* uploaded(Buffer.from(text), { ...given, uploadUrl }, false)
        assert.isTrue((yield* files.get("/worlds/world.txt")).text === text)
      })
    )
  })
})
