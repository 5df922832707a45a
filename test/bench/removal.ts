/** DELETE of a server with many files, until its daemon answers, against a server with only the files of its base. */
import { execFileSync } from "node:child_process"
import { mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { openDaemon, recorder, specOf } from "../daemon/support.ts"
import { until } from "../support/eventually.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, interleaved, median, print } from "./harness.ts"

const ROUNDS = 5
const FILES = 20_000
const FOLDERS = 200

export const removal = Effect.gen(function* () {
  const dataDir = yield* temporaryFolder
  const notes = recorder()
  const { daemon } = yield* openDaemon(dataDir, notes)

  const template = join(dataDir, "many")
  for (let index = 0; index < FILES; index++) {
    const inside = join(template, `d${index % FOLDERS}`)
    if (index < FOLDERS) mkdirSync(inside, { recursive: true })
    writeFileSync(join(inside, `f${index}`), "x")
  }

  /** Returns the milliseconds of the removal of a new server, with many files if `many`. */
  const remove = (many: boolean) =>
    Effect.gen(function* () {
      const spec = specOf()
      yield* daemon.create(spec)
      const isReady = () =>
        notes.reports.some(
          (report) => report.server_id === spec.id && report.type === "status" && report.status === "offline"
        )
      yield* until("the server is installed", isReady, 60)
      const folder = join(dataDir, "servers", spec.id, "files")
      if (many) execFileSync("cp", ["--recursive", template, folder])
      // The files of a real server have been written to disk long before.
      execFileSync("sync", ["--file-system", folder])
      const began = performance.now()
      yield* daemon.remove(spec.id)
      const millis = performance.now() - began
      yield* until("the files are gone", () => readdirSync(join(dataDir, "servers")).length === 0, 60)
      return millis
    }).pipe(Effect.mapError((error) => new BenchFailed({ message: String(error) })))

  const { baselines, subjects } = yield* interleaved(ROUNDS, remove(true), remove(false))
  const figure = (name: string, of: (values: ReadonlyArray<number>) => number) =>
    print({
      bench: "removal",
      figure: name,
      value: of(subjects),
      unit: "ms",
      baseline: "the same of a server with the files of its base only",
      baseline_value: of(baselines)
    })
  yield* figure("DELETE of a server with 20,000 files, median", median)
  yield* figure("DELETE of a server with 20,000 files, minimum", (values) => Math.min(...values))
}).pipe(Effect.scoped)
