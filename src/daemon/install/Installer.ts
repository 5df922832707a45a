/**
 * The base folders of software, made by install scripts. Imports `configPatch`, `console`, `files` and `runtime`. Read
 * first: this file, `prepareBase.ts` (scripts and warm-up), `bases.ts` (generations).
 */
import { randomUUID } from "node:crypto"
import { realpathSync } from "node:fs"
import { dirname, join } from "node:path"
import { Context, Deferred, Effect, Fiber, Layer } from "effect"
import { definitionIdPattern } from "../../contract/domain/Id.ts"
import type { InstallSteps } from "../../contract/domain/InstallState.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import {
  type IoError,
  ioSync,
  listFolder,
  lstatSync,
  makeClosedFolder,
  makeFolder,
  makePassage,
  orWarn,
  removeTree
} from "../disk/fsio.ts"
import { InstallFailed, installFailed } from "../files/InstallFailed.ts"
import { chownBase } from "../files/owners.ts"
import { CONTAINER_HOME, SCRATCH } from "../runtime/docker/containerOptions.ts"
import { Runtime } from "../runtime/Runtime.ts"
import { type Base, type BasesOptions, baseName, openBases } from "./bases.ts"
import { type HiddenPath, openBoundedLog } from "./installLog.ts"
import { prepareBase } from "./prepareBase.ts"
import { type OnSteps, StepLog } from "./StepLog.ts"

export interface Installed extends Base {
  readonly exit_code?: number
  /** The steps that the server waited for; none if the base was there. */
  readonly steps?: InstallSteps
}

interface Running {
  readonly outcome: Deferred.Deferred<Installed, InstallFailed>
  readonly steps: StepLog
  fiber: Fiber.Fiber<unknown, unknown> | undefined
  waiters: number
}

/** The prefix of folders that are being made or removed; they are deleted at the start. */
const ASIDE = ".aside-"
const LOGS = ".logs"
/** The pause before unused base folders are removed: a collection reads the folders of all bases. */
const COLLECT_PAUSE = "1 second"
const versionPattern = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/

/** @param options.baseDir the folder of base folders, for this service alone; `used`: see {@link BasesOptions} */
const makeInstaller = Effect.fnUntraced(function* (options: Omit<BasesOptions, "logOf">) {
  const { baseDir } = options
  const runtime = yield* Runtime
  const scope = yield* Effect.scope
  const running = new Map<string, Running>()
  const logOf = (software: string, name: string) => join(baseDir, LOGS, software, `${name}.log`)
  yield* clean(baseDir)
  const bases = yield* Effect.orDie(openBases({ ...options, logOf }))
  let isScheduled = false
  const collect = Effect.suspend(() => {
    if (isScheduled) return Effect.void
    isScheduled = true
    return Effect.asVoid(Effect.forkIn(runCollection, scope))
  })
  const runCollection = Effect.sync(() => {
    isScheduled = false
  }).pipe(Effect.andThen(bases.collect), Effect.delay(COLLECT_PAUSE))

  const logPath = (spec: ServerSpec) => logOf(spec.definition.software, baseName(spec))
  const keyOf = (spec: ServerSpec) => `${spec.definition.software}/${baseName(spec)}`

  const build = Effect.fnUntraced(
    function* (spec: ServerSpec, steps: StepLog) {
      const { software } = spec.definition
      const aside = join(baseDir, `${ASIDE}${randomUUID()}`)
      yield* Effect.acquireRelease(makePassage(aside), () => Effect.ignore(removeTree(aside)))
      yield* makeFolder(dirname(logPath(spec)))
      const made = join(aside, "base")
      const log = yield* openBoundedLog(logPath(spec), yield* hiddenPaths(aside, made))
      yield* makeClosedFolder(made)
      const exit_code = yield* prepareBase({ spec, folder: made, aside, log, runtime, steps })
      yield* chownBase(made)
      const base = yield* bases.publish(software, baseName(spec), made)
      yield* steps.finish
      return { ...base, steps: steps.now, ...(exit_code === undefined ? {} : { exit_code }) }
    },
    Effect.scoped,
    Effect.mapError((error) => (error._tag === "InstallFailed" ? error : installFailed(error)))
  )

  const begin = Effect.fnUntraced(function* (key: string, spec: ServerSpec) {
    const entry: Running = {
      outcome: yield* Deferred.make<Installed, InstallFailed>(),
      steps: new StepLog(),
      fiber: undefined,
      waiters: 0
    }
    running.set(key, entry)
    entry.fiber = yield* build(spec, entry.steps).pipe(
      Effect.onExit((exit) => {
        if (running.get(key) === entry) running.delete(key)
        return Effect.andThen(entry.steps.endSpan(exit), Deferred.done(entry.outcome, exit))
      }),
      Effect.forkIn(scope)
    )
    return entry
  })

  const join_ = (key: string, spec: ServerSpec, onSteps: OnSteps) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const entry = running.get(key) ?? (yield* begin(key, spec))
        entry.waiters++
        return yield* restore(entry.steps.watched(Deferred.await(entry.outcome), onSteps)).pipe(
          Effect.ensuring(
            Effect.suspend(() => {
              entry.waiters--
              if (entry.waiters > 0 || running.get(key) !== entry) return Effect.void
              running.delete(key)
              return entry.fiber === undefined ? Effect.void : Fiber.interrupt(entry.fiber)
            })
          )
        )
      })
    )

  const checkName = Effect.fnUntraced(function* (spec: ServerSpec) {
    const { software, version } = spec.definition
    if (!definitionIdPattern.test(software) || !versionPattern.test(version) || version.includes("..")) {
      return yield* new InstallFailed({
        reason: `invalid software or version: ${software} ${version}`,
        permanent: true
      })
    }
  })

  const install = Effect.fn("Installer.install")(
    function* (spec: ServerSpec, { force, onSteps }: { readonly force: boolean; readonly onSteps: OnSteps }) {
      yield* checkName(spec)
      const { software } = spec.definition
      const name = baseName(spec)
      const key = keyOf(spec)
      while (true) {
        const there = running.has(key) || force ? undefined : yield* bases.current(software, name)
        const installed: Installed = there ?? (yield* join_(key, spec, onSteps))
        yield* bases.pin(installed)
        // The folder may have been replaced and removed before it was pinned.
        if ((yield* lstatSync(installed.folder))?.isDirectory()) return installed
      }
    },
    Effect.catchTag("IoError", (error: IoError) => installFailed(error))
  )
  return {
    /** Schedules the removal of base folders without an instance; one for all calls of a second. */
    collect,
    /**
     * Returns the base folder of a server, pinned for the scope; installs it if needed or with `force`. Concurrent
     * callers share an installation, which is interrupted without callers.
     */
    install,
    isInstalling: (spec: ServerSpec) => running.has(keyOf(spec)),
    /** Returns the log of the last or current installation of a server's software; it may not exist. */
    logPath
  }
})

/**
 * Installs base folders, which all instances share: one per software, version, script, and values of the variables
 * that the script reads (spec 4.6).
 */
export class Installer extends Context.Service<Installer, Effect.Success<ReturnType<typeof makeInstaller>>>()(
  "muster/daemon/Installer"
) {
  static readonly layer = (options: Omit<BasesOptions, "logOf">) =>
    Layer.effect(Installer, makeInstaller(options))
}

/** Shows the folders of an installation as a container has them, in the log of a plain process too. */
const hiddenPaths = (aside: string, made: string) =>
  ioSync(`read ${aside}`, () => [aside, realpathSync(aside)]).pipe(
    Effect.map((names) =>
      names.flatMap(
        (name): ReadonlyArray<HiddenPath> => [
          [name + made.slice(aside.length), CONTAINER_HOME],
          [name, SCRATCH]
        ]
      )
    )
  )

const clean = Effect.fnUntraced(function* (baseDir: string) {
  yield* Effect.orDie(makePassage(baseDir))
  for (const name of yield* Effect.orDie(listFolder(baseDir))) {
    if (!name.startsWith(ASIDE)) continue
    yield* orWarn(removeTree(join(baseDir, name)))
  }
})
