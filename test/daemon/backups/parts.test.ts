import { createHash } from "node:crypto"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { partsWriter, readArchive } from "../../../src/daemon/backups/parts.ts"
import { folderTarget, ownFolder } from "../../../src/daemon/backups/target.ts"
import { makeTargets } from "../../../src/daemon/backups/targets.ts"
import { startFront } from "../../support/s3Server.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const ID = "a0123456789a"
const PART = 8

const digestOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

describe("docs/spec/backups.md 12.1, 12.3: the digests of an archive", () => {
  for (const length of [0, 1, PART, PART + 1, 2 * PART, 5 * PART - 3]) {
    it.effect(`${length} bytes in parts of ${PART}: each part and the archive have their SHA-256`, () =>
      Effect.gen(function* () {
        const target = folderTarget(ownFolder(join(yield* temporaryFolder, "backups")), 0)
        const bytes = Buffer.from(Array.from({ length }, (_, n) => n))
        const writer = yield* partsWriter(target, `${ID}/part`, PART)
        for (let at = 0; at < length; at += 3) yield* writer.write(bytes.subarray(at, at + 3))
        const { parts, sha256 } = yield* writer.end
        assert.strictEqual(sha256, digestOf(bytes))
        assert.deepStrictEqual(
          parts.map((part) => part.sha256),
          Array.from({ length: Math.max(1, Math.ceil(length / PART)) }, (_, n) =>
            digestOf(bytes.subarray(n * PART, (n + 1) * PART))
          )
        )
        const read = yield* Stream.runCollect(readArchive(target, { id: ID, parts }, sha256))
        assert.deepStrictEqual(Buffer.concat([...read]), bytes)
      })
    )

    it.effect(`${length} bytes: an archive with another digest than the control plane knows is damaged`, () =>
      Effect.gen(function* () {
        const target = folderTarget(ownFolder(join(yield* temporaryFolder, "backups")), 0)
        const writer = yield* partsWriter(target, `${ID}/part`, PART)
        yield* writer.write(Buffer.alloc(length))
        const { parts } = yield* writer.end
        const other = digestOf(Buffer.of(1))
        const error = yield* Effect.flip(Stream.runDrain(readArchive(target, { id: ID, parts }, other)))
        assert.strictEqual(error.code, "DAMAGED")
      })
    )
  }
})

describe("spec 12.6: parts in a bucket", () => {
  it.live("each is sent with the digest that its backup has of it, and is not hashed again", () =>
    Effect.gen(function* () {
      const sent: Array<string | undefined> = []
      const endpoint = yield* startFront("", ({ headers }) => {
        sent.push(headers["x-amz-content-sha256"]?.toString())
        return { status: 200, code: "" }
      })
      const { of } = yield* makeTargets({ own: "none", allowed: [], reserve: 0 })
      const secrets = { access_key_id: "key", secret_access_key: "secret" }
      const at = { endpoint, region: "eu-west-1", bucket: "backups", path_style: true, allow_private: true }
      const target = yield* of({ type: "s3", ...secrets, ...at })
      const writer = yield* partsWriter(target, "aaaaaaaaaaaa/part", 4)
      yield* writer.write(Buffer.from("a part"))
      const { parts } = yield* writer.end
      assert.deepStrictEqual(
        sent.splice(0),
        parts.map(({ sha256 }) => sha256)
      )
      const object = yield* target.put("aaaaaaaaaaaa/part-00003")
      yield* object.write(Buffer.from("others"))
      yield* object.end("0".repeat(64))
      yield* target.put("aaaaaaaaaaaa/manifest.json").pipe(Effect.flatMap((empty) => empty.end()))
      assert.deepStrictEqual(sent, ["0".repeat(64), createHash("sha256").digest("hex")])
    }).pipe(Effect.scoped)
  )
})
