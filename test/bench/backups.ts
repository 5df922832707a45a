/**
 * Backups of a server on the embedded node beside `tar | zstd` and `restic backup` on the same files, each onto the same
 * disk. `MUSTER_BENCH_MIB` is the size of the files, 256 KiB each.
 */
import { execFile } from "node:child_process"
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { type Service, startService } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, cpuMicros, median, poll, print } from "./harness.ts"
import { longestTurn } from "./turnProbe.ts"

const SIZE = Number(process.env.MUSTER_BENCH_MIB ?? 2048)
const FILE = 256 * 1024
const FOLDER_FILES = 256
const ROUNDS = 3

const bench = "backups"
const turnProbe = join(import.meta.dirname, "turnProbe.ts")

interface Spent {
  readonly seconds: number
  /** CPU time of all processes, in seconds. */
  readonly cpu: number
}

/** Writes files of which a half does not compress, as regions of a world. */
const makeFiles = (folder: string) => {
  let seed = 1
  const contents = Buffer.alloc(FILE, "minecraft:stone minecraft:air minecraft:dirt ")
  for (let n = 0; n < (SIZE * 2 ** 20) / FILE; n++) {
    for (let at = 0; at < FILE / 2; at += 4) {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
      contents.writeInt32LE(seed ^ (seed >>> 15), at)
    }
    const inner = join(folder, `region${Math.floor(n / FOLDER_FILES)}`)
    if (n % FOLDER_FILES === 0) mkdirSync(inner, { recursive: true })
    writeFileSync(join(inner, `r.${n}.mca`), contents)
  }
}

/** Runs a script, and returns its time and the CPU time of all its processes. */
const script = (text: string, env: Readonly<Record<string, string>> = {}) =>
  Effect.callback<Spent, BenchFailed>((resume) => {
    const timed = `TIMEFORMAT='%R %U %S'; set -o pipefail; time { ${text}; }`
    const child = execFile(
      "bash",
      ["-ec", timed],
      { env: { ...process.env, ...env } },
      (error, _, stderr) => {
        const [seconds, user, system] = (stderr.trimEnd().split("\n").at(-1) ?? "").split(" ").map(Number)
        if (error !== null || seconds === undefined || user === undefined || system === undefined)
          return resume(Effect.fail(new BenchFailed({ message: `${text}: ${stderr || error?.message}` })))
        return resume(Effect.succeed({ seconds, cpu: user + system }))
      }
    )
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** Backs up the server, and removes the backup. @param idle CPU time of a second without work */
const backUp = Effect.fnUntraced(function* (service: Service, server: string, idle: number) {
  const pid = service.process.pid ?? 0
  const before = yield* cpuMicros(pid)
  const began = performance.now()
  const begun = yield* expectStatus(service, 202, "POST", `/api/servers/${server}/backups`, { body: {} })
  const operation = yield* poll(
    "the backup",
    Effect.map(
      service.request("GET", `/api/operations/${begun.json.id}`, { headers: { prefer: "wait=60" } }),
      ({ json }) => (["done", "failed"].includes(json.state) ? json : undefined)
    ),
    { seconds: 600 }
  )
  const seconds = (performance.now() - began) / 1000
  const cpu = ((yield* cpuMicros(pid)) - before) / 1e6 - idle * seconds
  if (operation.state !== "done") return yield* new BenchFailed({ message: operation.reason })
  const [backup] = (yield* expectStatus(service, 200, "GET", `/api/servers/${server}/backups?limit=1`)).json
  yield* expectStatus(service, 204, "DELETE", `/api/backups/${backup.id}`)
  return { seconds, cpu } satisfies Spent
})

export const backups = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const service = yield* startService({
    env: {
      MUSTER_OVERCOMMIT_DISK: "1000",
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-20099",
      MUSTER_EMBEDDED_RUNTIME: "process",
      NODE_OPTIONS: `--max-semi-space-size=8 --import ${turnProbe}`
    }
  })
  const server = yield* installed(service, "demo", {
    overrides: { save: true, limits: { disk_space: Math.ceil((2 * SIZE * 2 ** 20) / 1e6) } }
  })
  const files = join(service.dataDir, "node", "servers", server, "files")
  makeFiles(files)
  const archive = join(folder, "files.tar.zst")
  const repository = join(folder, "restic")
  const restic = {
    RESTIC_REPOSITORY: repository,
    RESTIC_PASSWORD: "bench",
    RESTIC_CACHE_DIR: join(folder, "cache")
  }
  const [pid, before] = [service.process.pid ?? 0, service.output().length]
  const began = yield* cpuMicros(pid)
  yield* Effect.sleep("5 seconds")
  const idle = service.output().length
  const ways = [
    { name: "the service", run: backUp(service, server, ((yield* cpuMicros(pid)) - began) / 5e6) },
    {
      name: "tar | zstd",
      run: script(`tar -C ${files} -cf - . | zstd -q -f -o ${archive}; sync ${archive}`)
    },
    {
      name: "restic backup",
      run: Effect.gen(function* () {
        rmSync(repository, { recursive: true, force: true })
        yield* script("restic -q init", restic)
        return yield* script(`restic -q backup ${files}`, restic)
      })
    }
  ]
  const found = ways.map((): Array<Spent> => [])
  for (let round = 0; round < ROUNDS; round++)
    for (const [index, { run }] of ways.entries()) found[index]?.push(yield* run)
  yield* print({
    bench,
    figure: "longest turn of the event loop of service and node beside a backup, CPU time",
    value: longestTurn(service.output().slice(idle)),
    unit: "ms",
    baseline: "idle",
    baseline_value: longestTurn(service.output().slice(before, idle))
  })
  const of = (index: number, pick: (one: Spent) => number) => median((found[index] ?? []).map(pick))
  for (const [index, { name }] of ways.entries()) {
    if (index === 0) continue
    for (const [figure, pick] of [
      ["time", ({ seconds }: Spent) => seconds],
      ["CPU time", ({ cpu }: Spent) => cpu]
    ] as const) {
      yield* print({
        bench,
        figure: `backup of ${SIZE} MiB, ${figure}`,
        value: of(0, pick),
        unit: "s",
        baseline: name,
        baseline_value: of(index, pick)
      })
    }
  }
}).pipe(Effect.scoped)
