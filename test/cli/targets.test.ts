import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { options, service } from "../controlPlane/http/support/http.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { done, refused } from "./support.ts"

layer(service(), options)("muster backups targets", (it) => {
  describe("spec 8, 12.6: targets of backups", () => {
    it.effect("a target is defined without its secret in an argument, listed, tested and deleted", () =>
      Effect.gen(function* () {
        const file = join(yield* temporaryFolder, "secret")
        const secret = "a-secret-that-no-output-has"
        writeFileSync(file, `${secret}\n`)
        const made = yield* done(
          ...["backups", "targets", "create", "offsite", "--endpoint", "http://s3.invalid", "--path-style"],
          ...["--region", "eu-west-1", "--bucket", "kept", "--access-key", "AKIA", "--secret-file", file]
        )
        assert.match(made, /^bucket: +kept$/m)
        assert.notInclude(made, secret)
        assert.strictEqual(yield* done("backups", "targets", "list", "-o", "id"), "node\noffsite")
        const changed = yield* done(
          ...["backups", "targets", "patch", "offsite", "--bucket", "other", "--prefix", "muster"],
          ...["--secret-file", file, "--path-style", "false"]
        )
        assert.match(changed, /^bucket: +other$/m)
        assert.notInclude(changed, secret)
        const again = JSON.parse(
          yield* done("backups", "targets", "patch", "offsite", "--bucket", "kept", "--no-prefix", "--json")
        )
        assert.deepInclude(again, { bucket: "kept", path_style: false })
        assert.notProperty(again, "prefix")
        assert.include(yield* refused(64, "backups", "targets", "patch", "offsite"), "Say what to change")
        assert.match(yield* done("backups", "targets", "test", "node"), /can write, read and delete\.$/)
        const [{ name }] = JSON.parse(yield* done("nodes", "list", "--json"))
        const tested = yield* done("backups", "targets", "test", "node", "--node", name)
        assert.match(tested, /can write, read and delete\.$/)
        assert.include(yield* refused(3, "backups", "targets", "test", "node", "--node", "x"), "nodes list")
        const failed = yield* refused(1, "backups", "targets", "test", "offsite")
        assert.match(failed, /cannot write: write \w+\/test to bucket kept: /)
        assert.include(
          yield* refused(64, "backups", "targets", "delete", "offsite"),
          "Delete the target offsite"
        )
        const deleted = yield* done("backups", "targets", "delete", "offsite", "--yes")
        assert.strictEqual(deleted, "Target offsite is deleted.")
      })
    )

    it.effect("a target is a folder of the nodes, or all of a bucket", () =>
      Effect.gen(function* () {
        const made = yield* done("backups", "targets", "create", "nas", "--folder", "/mnt/nas")
        assert.match(made, /^folder: +\/mnt\/nas$/m)
        const changed = yield* done("backups", "targets", "patch", "nas", "--folder", "/mnt/other")
        assert.match(changed, /^folder: +\/mnt\/other$/m)
        assert.include(
          yield* refused(64, "backups", "targets", "patch", "nas", "--bucket", "kept"),
          "bucket: the target nas is a folder of nodes"
        )
        const failed = yield* refused(1, "backups", "targets", "test", "nas")
        assert.include(failed, "the setting MUSTER_NODE_BACKUP_FOLDERS of the node does not allow /mnt/other")
        const create = ["backups", "targets", "create", "x"]
        assert.strictEqual(
          yield* refused(64, "backups", "targets", "patch", "nas", "--bucket", "Bad_Name"),
          "bucket: Expected the name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens, with a letter or digit at both ends."
        )
        assert.include(yield* refused(64, ...create, "--bucket", "kept"), "--endpoint is missing")
        assert.include(
          yield* refused(64, ...create, "--folder", "/mnt/nas", "--bucket", "kept"),
          "--folder stands alone"
        )
        yield* done("backups", "targets", "delete", "nas", "--yes")
      })
    )
  })
})
