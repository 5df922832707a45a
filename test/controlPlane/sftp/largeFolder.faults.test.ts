import { execFileSync } from "node:child_process"
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import type { Service } from "../../support/Service.ts"
import { installed } from "../../support/servers.ts"
import { call, openSftp, sftpService } from "./support/sftp.ts"

const FILES = 40_000
const MOST_MEMORY = 32 * 2 ** 20

/** Written to `clear_refs` of a process, its peak of memory begins anew. */
const PEAK_ANEW = "5"

/** Returns the peak of the resident memory, in bytes. */
const memoryOf = ({ process: { pid } }: Service) =>
  Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024

layer(sftpService(), { excludeTestServices: true, timeout: "300 seconds" })(
  "a folder of 40,000 files",
  (it) => {
    describe("spec 10.6: large folders", () => {
      it.effect(
        "an open folder is read once, whatever its size, and each name comes once",
        () =>
          Effect.gen(function* () {
            const muster = yield* Muster
            const id = yield* installed(muster, "kept")
            const folder = join(muster.dataDir, "node", "servers", id, "files", "many")
            mkdirSync(folder)
            execFileSync("sh", ["-c", `cd "$0" && seq -f 'file-%.0f' ${FILES} | xargs touch`, folder])
            const sftp = yield* openSftp(muster, id, muster.key)
            writeFileSync(`/proc/${muster.process.pid}/clear_refs`, PEAK_ANEW)
            const before = memoryOf(muster)
            const began = performance.now()
            const names = yield* call<ReadonlyArray<{ filename: string }>>((done) =>
              sftp.readdir("/many", done)
            )
            const millis = performance.now() - began
            assert.strictEqual(new Set(names.map(({ filename }) => filename)).size, FILES)
            // Another scan of the folder for each answer would take longer.
            assert.isBelow(millis, 60_000)
            assert.isBelow(memoryOf(muster) - before, MOST_MEMORY)
          }).pipe(Effect.scoped),
        89_000
      )
    })
  }
)
