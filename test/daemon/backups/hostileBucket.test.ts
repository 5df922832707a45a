/** A bucket whose objects another program has replaced by a hostile archive (spec 12.5, 12.6). */
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { zstdCompressSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { BackupFigures, RestoredPart } from "../../../src/contract/domain/Backup.ts"
import { eventually } from "../../support/eventually.ts"
import { s3, startS3Server } from "../../support/s3Server.ts"
import { archive, member } from "../../support/tar.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { filesOf, places, put } from "../access/scene.ts"
import { made, newId, restoreOf, worked } from "./scene.ts"

const [place] = Object.values(places)
if (place === undefined) assert.fail("there is no place")

const sha256 = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex")

/** Archives by what is wrong with them; `outside` is a folder beside the server. */
const hostile = (outside: string): Readonly<Record<string, readonly [RegExp, Buffer]>> => ({
  "a path with ..": [
    /evil" is not a path of an instance$/,
    archive(member({ name: "./../evil", content: "x" }))
  ],
  "a path with .. in a folder": [
    /evil" is not a path of an instance$/,
    archive(member({ name: "./a", type: "5" }), member({ name: "./a/../../evil", content: "x" }))
  ],
  "an absolute path": [
    /evil" is not a path of an instance$/,
    archive(member({ name: join(outside, "evil"), content: "x" }))
  ],
  "a write through a link": [
    /in a folder that the archive has not listed$/,
    archive(member({ name: "./out", type: "2", link: outside }), member({ name: "./out/evil", content: "x" }))
  ],
  "a link in the place of a folder": [
    /"out" appears twice$/,
    archive(
      member({ name: "./out", type: "5" }),
      member({ name: "./out", type: "2", link: outside }),
      member({ name: "./out/evil", content: "x" })
    )
  ],
  "a hard link to a file of the host": [
    /"\.\/evil" is not a file, folder or link$/,
    archive(member({ name: "./evil", type: "1", link: join(outside, "secret") }))
  ],
  "an entry twice": [
    /"a" appears twice$/,
    archive(member({ name: "./a", content: "x" }), member({ name: "./a", content: "y" }))
  ],
  "an entry in a folder that is not listed": [
    /in a folder that the archive has not listed$/,
    archive(member({ name: "./no/evil", content: "x" }))
  ],
  "a device": [/"\.\/disk" is not a file, folder or link$/, archive(member({ name: "./disk", type: "4" }))],
  "a pipe": [/"\.\/pipe" is not a file, folder or link$/, archive(member({ name: "./pipe", type: "6" }))],
  "more bytes than the disk limit": [
    /they have more than 20\.0 MB$/,
    archive(member({ name: "./big", content: "x".repeat(30_000_000) }))
  ]
})

describe.skipIf(!s3.run)(`spec 12.5, 12.6: a hostile archive in a bucket${s3.note}`, () => {
  it.live(
    "ends the restore with a reason, and changes nothing in and beside the server",
    () =>
      Effect.gen(function* () {
        const { access, read, write } = yield* startS3Server
        const outside = yield* temporaryFolder
        writeFileSync(join(outside, "secret"), "of the host")
        const scene = yield* filesOf(place, { limits: { disk_space: 20 } })
        put(scene.folder, "present.txt", "present")
        const good = yield* made(scene, undefined, access)
        assert.strictEqual(good.reason, undefined)
        const key = (name: string) => `${access.prefix}/${good.backup_id}/${name}`
        const sealed = JSON.parse(yield* read(key("manifest.json")))
        const manifest = JSON.parse(sealed.manifest)
        const beside = () => readdirSync(join(scene.folder, "..")).toSorted()

        /** Puts an archive into the bucket, with a manifest that has its digests. */
        const plant = Effect.fnUntraced(function* (tar: Buffer) {
          const bytes = zstdCompressSync(tar)
          const { manifest_sha256: _, ...others } = good.figures ?? assert.fail("no figures")
          const figures = {
            ...others,
            stored_bytes: bytes.length,
            sha256: sha256(bytes)
          }
          const part = { key: `${good.backup_id}/part-00001`, bytes: bytes.length, sha256: figures.sha256 }
          const text = JSON.stringify({ ...manifest, figures, parts: [part] })
          yield* write(key("part-00001"), bytes)
          yield* write(key("manifest.json"), JSON.stringify({ sha256: sha256(text), manifest: text }))
          return { ...figures, manifest_sha256: sha256(text) }
        })
        const restore = (figures: BackupFigures | undefined, part?: RestoredPart) =>
          worked(scene, restoreOf(good.backup_id, figures, false, part), newId(), access)

        const fine = archive(member({ name: "./present.txt", content: "present" }))
        const planted = yield* plant(fine)
        assert.match((yield* restore(good.figures)).reason ?? "", /SHA-256 is another/)
        assert.strictEqual((yield* restore(planted)).reason, undefined)
        const before = readdirSync(scene.folder, { recursive: true }).toSorted()
        const around = beside()
        for (const [what, [pattern, tar]] of Object.entries(hostile(outside))) {
          const figures = yield* plant(tar)
          // As if the control plane had the digests of the hostile archive, and with those of the good one.
          for (const [of, known] of [["forged", figures] as const, ["known", good.figures] as const])
            for (const part of [undefined, { paths: ["/"], mode: "merge" } as const]) {
              const { reason = "", state } = yield* restore(known, part)
              assert.strictEqual(state, "failed", `${what}, ${of}`)
              assert.match(
                reason,
                of === "forged" ? pattern : new RegExp(`${pattern.source}|SHA-256 is another`),
                what
              )
              assert.notInclude(reason, "internal error", what)
              assert.deepStrictEqual(
                readdirSync(scene.folder, { recursive: true }).toSorted(),
                before,
                `${what}, ${of}: ${reason}`
              )
              // The state of the server is replaced by a file beside it, now and then.
              yield* eventually(Effect.sync(beside), (now) => now.join() === around.join())
              assert.strictEqual(readFileSync(join(scene.folder, "present.txt"), "utf8"), "present")
              assert.deepStrictEqual(readdirSync(outside), ["secret"], what)
              assert.isFalse(existsSync(join(scene.folder, "../evil")), what)
            }
        }
      }),
    120_000
  )
})
