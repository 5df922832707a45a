/**
 * Time from the command to the first answer, through npm and without, against a bare server started in the same way.
 */

import { mkdirSync, writeFileSync } from "node:fs"
import { get } from "node:http"
import { createServer } from "node:net"
import { delimiter, join } from "node:path"
import { Effect } from "effect"
import { adminKey } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import {
  BenchFailed,
  bareFile,
  interleaved,
  mainFile,
  median,
  poll,
  print,
  root,
  startProcess
} from "./harness.ts"

const ROUNDS = 5
const POLL_MILLIS = 5

const freePort = Effect.callback<number, BenchFailed>((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    const port = typeof address === "object" ? address?.port : undefined
    server.close(() =>
      resume(
        port === undefined ? Effect.fail(new BenchFailed({ message: "no free port" })) : Effect.succeed(port)
      )
    )
  })
})

/** Returns undefined until the server answers 200. */
const answer = (port: number) =>
  Effect.callback<true | undefined>((resume) => {
    const request = get({ host: "127.0.0.1", port, path: "/healthz", agent: false }, (response) => {
      response.resume()
      response.once("end", () => resume(Effect.succeed(response.statusCode === 200 || undefined)))
    })
    request.once("error", () => resume(Effect.succeed(undefined)))
  })

/** Returns the milliseconds from the start of a command to its first answer. */
const timeToAnswer = (
  command: string,
  args: ReadonlyArray<string>,
  cwd: string,
  env: Record<string, string>
) =>
  Effect.gen(function* () {
    const port = yield* freePort
    const began = performance.now()
    yield* startProcess(command, args, {
      cwd,
      env: { ...env, MUSTER_PORT: String(port), PORT: String(port) }
    })
    yield* poll(`${command} ${args.join(" ")}`, answer(port), { every: POLL_MILLIS })
    return performance.now() - began
  }).pipe(Effect.scoped)

export const start = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const bareFolder = join(folder, "bare")
  yield* Effect.sync(() => {
    mkdirSync(bareFolder)
    const scripts = { start: `node ${JSON.stringify(bareFile)}` }
    writeFileSync(join(bareFolder, "package.json"), JSON.stringify({ name: "bare", scripts }))
  })
  // Both commands find the same Node.
  const path = [join(root, "node_modules/.bin"), process.env.PATH].join(delimiter)
  const env = {
    PATH: path,
    MUSTER_DATA_DIR: join(folder, "data"),
    APP_ADMIN_API_KEY: adminKey,
    MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-20099"
  }

  const measure = Effect.fnUntraced(function* (
    figure: string,
    baseline: string,
    subject: Effect.Effect<number, BenchFailed>,
    other: Effect.Effect<number, BenchFailed>
  ) {
    yield* interleaved(1, subject, other)
    const { subjects, baselines } = yield* interleaved(ROUNDS, subject, other)
    yield* print({
      bench: "start",
      figure,
      value: median(subjects),
      unit: "ms",
      baseline,
      baseline_value: median(baselines)
    })
  })

  yield* measure(
    "npm start to the first answer",
    "npm start of a bare node:http",
    timeToAnswer("npm", ["start"], root, env),
    timeToAnswer("npm", ["start"], bareFolder, env)
  )
  yield* measure(
    "node src/main.ts serve to the first answer",
    "node of a bare node:http",
    timeToAnswer(process.execPath, [mainFile, "serve"], root, env),
    timeToAnswer(process.execPath, [bareFile], bareFolder, env)
  )
}).pipe(Effect.scoped)
