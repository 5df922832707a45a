import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { installed } from "../../support/servers.ts"
import { call, openSftp, sftpService } from "./support/sftp.ts"

const FILES = 20_000

layer(sftpService(), { excludeTestServices: true, timeout: "300 seconds" })(
  "a folder of 20,000 files",
  (it) => {
    describe("spec 10.6: large folders", () => {
      it.effect("an open folder is read once, whatever its size, and each name comes once", () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const id = yield* installed(muster, "kept")
          const folder = join(muster.dataDir, "node", "servers", id, "files", "many")
          mkdirSync(folder)
          for (let count = 0; count < FILES; count += 1) writeFileSync(join(folder, `file-${count}`), "")
          const sftp = yield* openSftp(muster, id, muster.key)
          const began = performance.now()
          const names = yield* call<ReadonlyArray<{ filename: string }>>((done) =>
            sftp.readdir("/many", done)
          )
          const millis = performance.now() - began
          assert.strictEqual(new Set(names.map(({ filename }) => filename)).size, FILES)
          // Another scan of the folder for each answer would take longer.
          assert.isBelow(millis, 30_000)
        }).pipe(Effect.scoped)
      )
    })
  }
)
