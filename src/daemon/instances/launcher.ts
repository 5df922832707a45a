import { Effect } from "effect"
import { type Allocations, portText } from "../../contract/domain/Allocation.ts"
import type { ConfigPatches } from "../../contract/domain/ConfigPatch.ts"
import { type ControlPlaneError, ControlPlaneUnavailable } from "../../contract/nodeApi/ControlPlaneApi.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { applyConfigs } from "../configPatch/ConfigPatcher.ts"
import type { PlaceholderContext } from "../configPatch/placeholders.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import { onlineMatcher } from "../console/onlineSignal.ts"
import { orWarn } from "../disk/fsio.ts"
import { instanceFolder } from "../files/sharedFiles.ts"
import { type Busy, busyPorts, busyText } from "../host/busyPorts.ts"
import { warnInInstallLog } from "../install/installLog.ts"
import { launchPlan, specFor } from "../runtime/launchPlan.ts"
import type { InstanceState } from "../state/InstanceState.ts"
import { refusals } from "./refusals.ts"
import { serverUser } from "./serverUser.ts"
import type { Serving } from "./serving.ts"

/** Replacements of one start: other programs may have the new ports, too. */
const ROUNDS = 5
const TIMEOUT = "5 seconds"

const noAnswer = new ControlPlaneUnavailable({ detail: "the control plane did not answer in time" })

const portsOf = ({ mappings }: Allocations) =>
  Object.entries(mappings).flatMap(([ip, ports]) => ports.map((port) => ({ ip, port })))

const answered = ({ ports_asked: _, ...state }: InstanceState): InstanceState => state

const reasonOf = (error: ControlPlaneError) =>
  error._tag === "RegistrationRequired" ? "the node is not registered" : error.detail

/** Returns the ports that changed: `10.0.0.7:25565 to 10.0.0.7:25570`. */
const changesOf = (before: Allocations, after: Allocations) => {
  const now = portsOf(after)
  return portsOf(before).flatMap((port, place) => {
    const other = now[place]
    return other === undefined || portText(other) === portText(port)
      ? []
      : [`${portText(port)} to ${portText(other)}`]
  })
}

/** Replaces ports that other programs have. The question is recorded first, so a killed daemon asks again. */
const ensurePorts = Effect.fnUntraced(function* ({ file, folder, replacePorts, sources }: Serving) {
  const { refused } = refusals(sources)
  const { id } = file.get().spec

  const refuse = (busy: ReadonlyArray<Busy>, reason: string) =>
    busy.length === 0
      ? refused(
          409,
          `the control plane must confirm the ports of the server first: ${reason}`,
          "Start the server once its node is connected."
        )
      : refused(
          409,
          `${busyText(busy)}, and the server has no other port: ${reason}`,
          "Stop that program or give the node more ports, then start the server."
        )

  for (let round = 0; ; round++) {
    const { ports_asked, spec } = file.get()
    const busy = yield* busyPorts(portsOf(spec.allocations))
    if (busy.length === 0 && ports_asked !== true) return
    if (round === ROUNDS) return yield* refuse(busy, `${ROUNDS} others are taken, too`)
    yield* file.update((state) => ({ ...state, ports_asked: true }))
    const taken = busy.map(({ ip, port }) => ({ ip, port }))
    const allocations = yield* replacePorts(id, taken).pipe(
      Effect.timeoutOrElse({ duration: TIMEOUT, orElse: () => Effect.fail(noAnswer) }),
      Effect.tapError((error) =>
        // Nothing has changed; an earlier question may have changed the ports.
        error._tag === "ControlPlaneUnavailable" && error.refuses === "message" && ports_asked !== true
          ? file.update(answered)
          : Effect.void
      ),
      Effect.mapError((error) => refuse(busy, reasonOf(error)))
    )
    yield* file.update((state) => ({ ...answered(state), spec: { ...state.spec, allocations } }))
    const changes = changesOf(spec.allocations, allocations)
    if (changes.length === 0) continue
    if (busy.length > 0) yield* Effect.logWarning(`${busyText(busy)}: the server gets other ports`)
    yield* orWarn(
      appendConsoleLine(folder, `another program has a port of the server: ${changes.join(", ")}`)
    )
  }
})

/** The longest pause after a start that failed on its config files, in milliseconds. */
const MAX_PAUSE = 30_000

const checkDiskLimit = Effect.fnUntraced(function* ({ file, files, folder, sources }: Serving) {
  const { ofNode, refused } = refusals(sources)
  const over = yield* Effect.mapError(files.overLimit(folder, file.get().spec), ofNode)
  if (over === undefined) return
  return yield* refused(
    409,
    `the server uses ${over.used}, its disk limit is ${over.allowed}`,
    "Remove files of the server on its node, or reset the server, which deletes everything that it has written, its world too. A higher limits.disk_space is another way: PATCH /api/servers/:server."
  )
})

/** Patches the config files. From the second failure on, starts are refused for a time that doubles. */
const patchConfigs = Effect.fnUntraced(function* (
  it: Serving,
  configs: ConfigPatches,
  context: PlaceholderContext
) {
  const { ofConfig, refused } = refusals(it.sources)
  const earlier = it.failedConfigs?.configs === configs ? it.failedConfigs : undefined
  const left = earlier === undefined ? 0 : Math.ceil((earlier.until - (yield* elapsedMillis)) / 1000)
  if (earlier !== undefined && left > 0) {
    const { detail, hint } = earlier.refusal
    return yield* refused(422, detail, `${hint} The files are read again in ${left} s.`)
  }
  const warnings = yield* applyConfigs(instanceFolder(it.folder), configs, context).pipe(
    Effect.mapError(ofConfig),
    Effect.tapError(
      Effect.fnUntraced(function* (refusal) {
        const times = (earlier?.times ?? 0) + 1
        const pause = times === 1 ? 0 : Math.min(1000 * 2 ** (times - 1), MAX_PAUSE)
        it.failedConfigs = { configs, refusal, times, until: (yield* elapsedMillis) + pause }
      })
    )
  )
  it.failedConfigs = undefined
  return warnings
})

/** Checks and prepares a launch before the state changes: command line, online signal, files. */
export const prepare = Effect.fnUntraced(function* (it: Serving) {
  const { file, files, folder, runtime } = it
  const { ofNode, ofSoftware } = refusals(it.sources)
  yield* ensurePorts(it)
  const { spec } = file.get()
  const { definition } = spec
  const { online_signal } = definition.process
  const kind = yield* Effect.mapError(runtime.kindFor(definition), ofNode)
  const plan = yield* Effect.mapError(Effect.fromResult(launchPlan(specFor(kind, spec))), ofSoftware)
  const user = yield* Effect.mapError(serverUser(file, runtime), ofNode)
  yield* checkDiskLimit(it)
  const signal = online_signal === undefined ? undefined : onlineMatcher(online_signal)
  if (signal !== undefined && "invalid" in signal) {
    return yield* ofSoftware(`online-signal: ${signal.invalid}`)
  }
  const shared = yield* Effect.mapError(
    Effect.andThen(files.reclaim(folder, user), files.open(folder, spec, kind, user)),
    ofNode
  )
  yield* Effect.mapError(files.copyAtStart(folder, spec), ofNode)
  yield* warnInInstallLog(folder, yield* patchConfigs(it, definition.configs, plan.context))
  const log_offset = yield* Effect.mapError(it.console().begin, ofNode)
  return {
    plan,
    shared,
    user,
    /** The offset in the console at which the output will begin. */
    log_offset
  }
})

/** Launches the process; `token` names the run. */
export const launch = (
  { file, folder, runtime, sources }: Serving,
  { plan, shared, user }: Effect.Success<ReturnType<typeof prepare>>,
  token: string
) => {
  const { allocations, definition, id } = file.get().spec
  const { image, limits, runtimes } = definition
  const { argv, env } = plan
  const cwd = instanceFolder(folder)
  const { terminal } = definition.process
  const what = { argv, env, limits, image, runtimes, allocations, shared, user, terminal }
  return runtime
    .start({ server_id: id, token, folder, cwd, ...what })
    .pipe(Effect.mapError(refusals(sources).ofNode))
}
