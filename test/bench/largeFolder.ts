/** The first page of a folder of 200,000 files, beside that of a folder of 1,000 (spec 10.3). */
import { execFileSync } from "node:child_process"
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { cpuMicros, interleaved, median, print, residentMiB } from "./harness.ts"

const ROUNDS = 15
const bench = "largeFolder"

const filled = (folder: string, files: number) => {
  mkdirSync(folder)
  execFileSync("sh", ["-c", `seq -f 'name-%06.0f' 1 ${files} | xargs touch`], { cwd: folder })
}

export const largeFolder = Effect.gen(function* () {
  const { env } = yield* definitions({
    software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
    blueprints: { "game.yml": blueprintFile("game", "game") }
  })
  const service = yield* startService({ env })
  const pid = service.process.pid ?? 0
  const id = yield* installed(service, "game")
  const files = join(service.dataDir, "node/servers", id, "files")
  filled(join(files, "large"), 200_000)
  filled(join(files, "small"), 1000)
  const page = (folder: string) =>
    Effect.gen(function* () {
      const [before, began] = [yield* cpuMicros(pid), performance.now()]
      yield* expectStatus(service, 200, "GET", `/api/servers/${id}/files?path=/${folder}`)
      return { millis: performance.now() - began, cpu: ((yield* cpuMicros(pid)) - before) / 1000 }
    })
  // The first requests compile the code.
  for (let round = 0; round < 20; round++) yield* page("small")
  const resident = yield* residentMiB(pid)
  const { subjects, baselines } = yield* interleaved(ROUNDS, page("large"), page("small"))
  const grown = (yield* residentMiB(pid)) - resident
  for (const [figure, of] of [
    ["first page of 200,000 files", "millis"],
    ["the same, CPU time", "cpu"]
  ] as const)
    yield* print({
      bench,
      figure,
      value: median(subjects.map((one) => one[of])),
      unit: "ms",
      baseline: "1,000 files",
      baseline_value: median(baselines.map((one) => one[of]))
    })
  yield* print({
    bench,
    figure: "extra memory of the service",
    value: grown,
    unit: "MiB",
    baseline: "before",
    baseline_value: resident
  })
}).pipe(Effect.scoped)
