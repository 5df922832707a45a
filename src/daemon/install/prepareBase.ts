import * as fs from "node:fs/promises"
import { basename, join } from "node:path"
import { Effect, Option } from "effect"
import { splitWords } from "../../contract/domain/commandLine.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { InstallScript } from "../../contract/domain/Software.ts"
import { applyConfigs } from "../configPatch/ConfigPatcher.ts"
import { contextOf } from "../configPatch/placeholders.ts"
import { onlineMatcher, searchOutput } from "../console/onlineSignal.ts"
import { type IoError, io, isDiskFull, makeFolder } from "../disk/fsio.ts"
import { readFileInside, removeFileInside, writeFileInside } from "../disk/safePath.ts"
import { InstallFailed, installFailed } from "../files/InstallFailed.ts"
import { chownTree } from "../files/owners.ts"
import { stopMethod } from "../runtime/exitReason.ts"
import { launchPlan, specFor } from "../runtime/launchPlan.ts"
import type { Runtime, RunUser } from "../runtime/Runtime.ts"
import { scriptVariables } from "./bases.ts"
import type { BoundedLog } from "./installLog.ts"
import type { StepLog } from "./StepLog.ts"

/** The time for a warm-up to stop, in seconds. */
const STOP_TIMEOUT = 30

const HOME = "home"
const SCRIPT = "script"

interface Preparation {
  /** The specification as the server's process sees it. */
  readonly spec: ServerSpec
  /** The specification from which the name of the base is made. */
  readonly given: ServerSpec
  readonly folder: string
  readonly aside: string
  readonly log: BoundedLog
  readonly runtime: Runtime["Service"]
  readonly steps: StepLog
  readonly user: RunUser | undefined
}

const failed = (reason: string, exit_code?: number) =>
  new InstallFailed(exit_code === undefined ? { reason } : { reason, exit_code })

const invalidSoftware = (reason: string) => new InstallFailed({ reason, permanent: true })

/** Returns a name unique to the preparation, so that its end does not kill processes of another. */
const jobName = (aside: string) => `install:${basename(aside)}`

/** Sets the owner of a job's folders, but not their parent, which has files that the daemon runs. */
const chownFolders = ({ aside, folder, user }: Preparation) =>
  user?.own === true
    ? Effect.forEach([folder, join(aside, HOME), join(aside, SCRIPT)], (path) => chownTree(path, user), {
        discard: true
      })
    : Effect.void

/** Runs a script in the folder and returns its exit code. `what`: its name in messages, e.g. `install script`. */
const runScript = Effect.fnUntraced(function* (
  at: Preparation,
  what: string,
  install: InstallScript,
  script: string,
  timeout: number
) {
  const { spec, folder, aside, log, runtime } = at
  const { software, version } = spec.definition
  const entrypoint = splitWords(install.entrypoint)
  if ("invalid" in entrypoint) return yield* invalidSoftware(`entrypoint: ${entrypoint.invalid}`)
  const [program = "sh", ...args] = entrypoint.words
  const path = join(aside, SCRIPT)
  yield* io("write the install script", () =>
    fs.writeFile(path, script.replaceAll("\r\n", "\n"), { mode: 0o700 })
  )
  const home = join(aside, HOME)
  yield* makeFolder(home)
  yield* chownFolders(at)
  const job = yield* runtime
    .job({
      name: jobName(aside),
      folder: aside,
      cwd: folder,
      argv: [program, ...args, path],
      env: {
        ...scriptVariables(at.given, install),
        ...{ HOME: home, VERSION: version, SOFTWARE_ID: software, INSTALL_DIR: folder }
      },
      onOutput: log.write,
      hasInput: false,
      choice: spec.definition,
      scratch: aside,
      user: at.user
    })
    .pipe(Effect.mapError((error) => installFailed(error, { what })))
  const exit = yield* Effect.timeoutOption(job.ended, timeout * 1000)
  if (Option.isNone(exit)) return yield* failed(`${what} timed out after ${timeout} s`)
  const { code } = exit.value
  if (code === 0) return code
  const reason = `${what} exited with ${code}`
  if (!(yield* isDiskFull(folder))) return yield* failed(reason, code)
  return yield* installFailed({ message: "disk full", code: "ENOSPC" }, { what: reason, exit_code: code })
}, Effect.scoped)

const warmUp = Effect.fnUntraced(function* (at: Preparation, install: InstallScript) {
  const { spec, folder, log, runtime } = at
  const { online_signal, stop_command, terminal } = spec.definition.process
  const plan = yield* Effect.mapError(Effect.fromResult(launchPlan(spec)), (reason) =>
    invalidSoftware(`warm-up: ${reason}`)
  )
  const signal = online_signal === undefined ? undefined : onlineMatcher(online_signal)
  if (signal !== undefined && "invalid" in signal)
    return yield* invalidSoftware(`warm-up: online-signal: ${signal.invalid}`)
  const output = signal === undefined ? undefined : searchOutput(signal.matcher)
  yield* chownFolders(at)
  const job = yield* runtime
    .job({
      name: jobName(at.aside),
      folder: at.aside,
      cwd: folder,
      argv: plan.argv,
      env: plan.env,
      onOutput: (bytes) => {
        log.write(bytes)
        output?.read(bytes)
      },
      choice: spec.definition,
      limits: spec.definition.limits,
      user: at.user,
      terminal
    })
    .pipe(Effect.mapError((error) => installFailed(error, { what: "warm-up" })))
  if (output !== undefined) {
    const early = Effect.flatMap(job.ended, (exit) =>
      Effect.fail(failed(`warm-up ended with exit code ${exit.code} before its online signal`, exit.code))
    )
    const seen = yield* Effect.timeoutOption(
      Effect.raceFirst(output.found, early),
      install.warmup_timeout * 1000
    )
    if (Option.isNone(seen)) return yield* failed(`warm-up timed out after ${install.warmup_timeout} s`)
  }
  const way = stopMethod(stop_command)
  yield* "line" in way ? job.write(way.line) : job.signal(way.signal)
  yield* Effect.timeoutOption(job.ended, STOP_TIMEOUT * 1000)
}, Effect.scoped)

const warmUpFailed = (reason: string) => failed(`warm-up: ${reason}`)

const MAX_PATCHED_BYTES = 10 * 1024 * 1024

const restorerOf = Effect.fnUntraced(function* (folder: string, file: string) {
  const before = yield* readFileInside(folder, file, MAX_PATCHED_BYTES)
  const restore: Effect.Effect<void, { readonly _tag: string }> = Option.isNone(before)
    ? // Removes nothing through a link that the software made in place of a folder.
      removeFileInside(folder, file)
    : writeFileInside(folder, file, before.value)
  return restore
})

/** Patches a folder during `use`, then restores it for servers with other patches. `warn` gets unmatched patches. */
const withPatches = Effect.fnUntraced(function* (
  folder: string,
  spec: ServerSpec,
  use: Effect.Effect<void, InstallFailed | IoError>,
  warn: (text: string) => Effect.Effect<void>
): Effect.fn.Return<void, InstallFailed | IoError> {
  const context = yield* Effect.mapError(Effect.fromResult(contextOf(spec)), (error) =>
    warmUpFailed(error.message)
  )
  const { configs } = spec.definition
  const restores = yield* Effect.forEach(Object.keys(configs), (file) =>
    Effect.mapError(restorerOf(folder, file), (error) =>
      warmUpFailed(`${file} cannot be read: ${error._tag}`)
    )
  )
  const restore = Effect.forEach(restores, (effect) =>
    Effect.catch(effect, (error) =>
      Effect.logWarning(`a patched file of the base was not restored: ${error._tag}`)
    )
  )
  yield* applyConfigs(folder, configs, context).pipe(
    Effect.mapError((error) => warmUpFailed(error.message)),
    Effect.flatMap((warnings) => Effect.forEach(warnings, warn, { discard: true })),
    Effect.andThen(use),
    Effect.ensuring(restore)
  )
})

/** Runs the warm-up with its retries and policy; config patches are applied only during the warm-up. */
const runWarmUp = Effect.fnUntraced(function* (at: Preparation, install: InstallScript) {
  const warn = (text: string) => at.log.line(`[WARN ${text}]`)
  const attempt = withPatches(at.folder, at.spec, warmUp(at, install), warn).pipe(
    Effect.tapError((error) =>
      at.log.line(`[${error._tag === "InstallFailed" ? error.reason : error.message}]`)
    )
  )
  const retried = Effect.retry(attempt, { times: Math.max(0, install.warmup_retries) })
  if (install.warmup_failure_policy === "fail") return yield* retried
  yield* Effect.catch(retried, () => at.log.line("[the warm-up failed; installed without it]"))
})

/** Fills a new base folder by scripts and warm-up. Returns the install script's exit code, if it ran. */
export const prepareBase = Effect.fnUntraced(function* (given: Omit<Preparation, "given" | "user">) {
  const { definition } = given.spec
  const install = definition.install_script
  const kind = yield* given.runtime.kindFor(definition)
  yield* given.runtime.ensureImage(definition, given.log.write, given.steps.pull)
  const user = yield* given.runtime.userFor(definition, { software: definition.software })
  const at: Preparation = { ...given, user, given: given.spec, spec: specFor(kind, given.spec) }
  if (install === null || install.skip_scripts) return undefined
  yield* at.steps.begin("script")
  const code = yield* runScript(at, "install script", install, install.script, install.timeout)
  if (install.warmup) {
    yield* at.steps.begin("warmup")
    yield* runWarmUp(at, install)
    if (install.post_warmup_script !== "") {
      yield* runScript(
        at,
        "post-warmup script",
        install,
        install.post_warmup_script,
        install.post_warmup_timeout
      )
    }
  }
  const problem = at.log.problem()
  if (problem?.code === "ENOSPC") return yield* installFailed(problem)
  return code
})
