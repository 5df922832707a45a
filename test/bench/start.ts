/**
 * Time from the command to the first answer, through npm and without, against a bare server started in the same way; and
 * the time of whole commands against a bare `fetch` in Node.js.
 */
import { spawn } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { get } from "node:http"
import { createServer } from "node:net"
import { delimiter, join } from "node:path"
import { Effect } from "effect"
import { adminKey, startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, interleaved, mainFile, median, poll, print, root, startProcess } from "./harness.ts"

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

/** Returns the milliseconds from the start of a command to its end, with status 0. */
const timeToEnd = (args: ReadonlyArray<string>, env: Record<string, string>) =>
  Effect.callback<number, BenchFailed>((resume) => {
    const began = performance.now()
    const child = spawn(process.execPath, args, { cwd: root, env, stdio: "ignore" })
    child.once("close", (code) =>
      resume(
        code === 0
          ? Effect.succeed(performance.now() - began)
          : Effect.fail(new BenchFailed({ message: `${args.join(" ")}: ended with ${code}` }))
      )
    )
  })

/** The least that a server and a call of it take, without types that Node.js would have to remove. */
const bareServer = `import { createServer } from "node:http"
createServer((_request, response) => response.end("{}")).listen(process.env.PORT, "127.0.0.1")`
const bareCall = `await fetch(process.env.MUSTER_URL + "/healthz").then((response) => response.json())`

export const start = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const bareFolder = join(folder, "bare")
  const bareFile = join(bareFolder, "server.mjs")
  const callFile = join(bareFolder, "call.mjs")
  yield* Effect.sync(() => {
    mkdirSync(bareFolder)
    writeFileSync(bareFile, bareServer)
    writeFileSync(callFile, bareCall)
    const scripts = { start: "exec node server.mjs" }
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
    "node dist/main.js serve to the first answer",
    "node of a bare node:http",
    timeToAnswer(process.execPath, [mainFile, "serve"], root, env),
    timeToAnswer(process.execPath, [bareFile], bareFolder, env)
  )

  const service = yield* startService()
  const commandEnv = { PATH: path, MUSTER_URL: service.url, MUSTER_API_KEY: service.key }
  yield* measure(
    "muster --version",
    "node of an empty program",
    timeToEnd([mainFile, "--version"], commandEnv),
    timeToEnd(["--eval", "0"], commandEnv)
  )
  yield* measure(
    "muster servers list",
    "node of a bare fetch",
    timeToEnd([mainFile, "servers", "list"], commandEnv),
    timeToEnd([callFile], commandEnv)
  )
}).pipe(Effect.scoped)
