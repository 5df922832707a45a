import { Effect, Schedule, type Scope, Stream } from "effect"
import { stripAnsi } from "../contract/domain/ConsoleLine.ts"
import type { NodeId } from "../contract/domain/Id.ts"
import type { HostInfo } from "../contract/domain/Node.ts"
import { stopTimeoutOf } from "../contract/domain/ServerDefinition.ts"
import { type Daemon, DaemonRefused, type LinesRequest } from "../contract/nodeApi/Daemon.ts"
import { makeAccess } from "./access/makeAccess.ts"
import { makeTasks } from "./access/tasks.ts"
import { packFiles } from "./archives/packFiles.ts"
import { type BackupSettings, makeBackups } from "./backups/makeBackups.ts"
import { makeLineIndex, pageBounds } from "./console/lines.ts"
import type { IoError } from "./disk/fsio.ts"
import { likelyKind } from "./files/fileContext.ts"
import type { InstanceFiles } from "./files/InstanceFiles.ts"
import { instanceFolder } from "./files/sharedFiles.ts"
import type { Installer } from "./install/Installer.ts"
import { installLogPath } from "./install/installLog.ts"
import type { Instance } from "./instances/Instance.ts"
import type { Instances } from "./instances/Instances.ts"
import { type NodePlace, refusals, refuse } from "./instances/refusals.ts"
import { daemonServer, heldServer, type InstanceState } from "./state/InstanceState.ts"
import { makeStats } from "./stats.ts"

const unreadable = (error: IoError) =>
  refuse(500, error.message, "Look at the files of the server on its node.")

/** Returns the files of a server that is held and offline, for `Daemon.files`. */
const exportFiles = Effect.fnUntraced(function* (
  files: InstanceFiles["Service"],
  folder: string,
  { held, spec, status, work }: InstanceState
): Effect.fn.Return<Stream.Stream<Uint8Array, DaemonRefused>, DaemonRefused, Scope.Scope> {
  if (held !== true || status !== "offline" || work !== "none") {
    return yield* refuse(
      409,
      `the server is not held, or not offline: ${spec.id}`,
      "Hold it and stop it first."
    )
  }
  const paths = yield* Effect.mapError(files.paths(spec), unreadable)
  // Mounts the files first: an unmounted server would look like one without files.
  yield* Effect.mapError(files.open(folder, spec, likelyKind(spec), "kept"), unreadable)
  const archive = yield* Effect.mapError(packFiles(instanceFolder(folder), paths), unreadable)
  return Stream.mapError(archive, unreadable)
})

export interface DaemonParts {
  readonly version: string
  readonly instances: Instances["Service"]
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly backups: BackupSettings
  readonly place: NodePlace
  readonly system: Effect.Effect<HostInfo>
  readonly register: Effect.Effect<void>
}

const notRunning = (done = "") => refuse(409, `${done}the server is not running`, "Start the server first.")

/** After its start, the daemon looks for earlier processes, and waits for an engine that is down. */
const notAdopted = (node_id: NodeId) =>
  new DaemonRefused({
    status: 500,
    detail: "the process of the server is not adopted yet",
    hint: `Try again in a few seconds. If this persists, check that Docker runs on node ${node_id}.`
  })

// biome-ignore lint/suspicious/noControlCharactersInRegex: a control character could end the line early
const control = /[\u0000-\u001f\u007f]/

/** The longest line of input of a terminal, in bytes; it cuts a longer one. */
const TERMINAL_LINE = 4095

const sendCommands = Effect.fnUntraced(function* (
  instance: Instance,
  lines: ReadonlyArray<string>,
  { node_id }: NodePlace,
  by: string | undefined
) {
  if (lines.some((line) => control.test(line))) {
    return yield* refuse(422, "a command contains control characters", "Send one line a command.")
  }
  const { status } = instance.file.get()
  const run = instance.run()
  if (status === "running" && !instance.isAdopted()) return yield* notAdopted(node_id)
  if (run === undefined || status === "paused") return yield* notRunning()
  const { definition } = instance.file.get().spec
  const longest = Math.max(...lines.map((line) => Buffer.byteLength(line)))
  if (definition.process.terminal === true && longest > TERMINAL_LINE) {
    return yield* refuse(
      422,
      `a command has ${longest} bytes, and a terminal takes at most ${TERMINAL_LINE} a line`,
      "Send shorter commands."
    )
  }
  for (const [index, line] of lines.entries()) {
    // Otherwise the end of the process would be a crash.
    if (line.trim() === definition.process.stop_command.trim()) {
      yield* instance.power("stop", stopTimeoutOf(definition), by)
      continue
    }
    yield* Effect.mapError(run.write(line), ({ isPartial = false, message, why }) => {
      const part = isPartial ? ", and a part of the next" : ""
      const done = index > 0 || isPartial ? `${index} of ${lines.length} commands were written${part}; ` : ""
      switch (why) {
        case "closed":
          return notRunning(done)
        case "full":
          return refuse(
            409,
            `${done}${message}`,
            "Wait until the server reads its console, then send the remaining commands."
          )
        case "away":
          return refuse(
            500,
            `${done}${message}`,
            `Start Docker on node ${node_id}, then send the remaining commands. The server may still run.`
          )
      }
    })
  }
})

const installLogs = Effect.fnUntraced(function* (
  { file, folder }: Instance,
  installer: Installer["Service"],
  request: LinesRequest
) {
  const { spec, work } = file.get()
  const isShared = (work === "install" || work === "reinstall") && installer.isInstalling(spec)
  const path = isShared ? installer.logPath(spec) : installLogPath(folder)
  const index = makeLineIndex(path)
  const total = yield* index.total
  const { from, to } = pageBounds(total, request, false)
  const lines = from < to ? yield* index.read(from, to) : []
  return { items: lines.map(({ text }) => stripAnsi(text)), total }
})

/** Makes the daemon that the control plane calls, from the servers of this node. */
export const makeDaemon = Effect.fnUntraced(function* (parts: DaemonParts) {
  const { files, installer, instances, place, register, system, version } = parts
  const { ofDisk: diskRefused } = refusals(place)
  const stats = yield* makeStats(files)
  const access = makeAccess(files, instances, yield* makeTasks)
  yield* access.uploads.expire.pipe(Effect.repeat(Schedule.spaced("1 hour")), Effect.forkScoped)
  return {
    system: Effect.map(system, (host) => ({ version, system: host })),
    register,
    create: instances.create,
    find: (id) => Effect.map(instances.get(id), ({ file }) => daemonServer(file.get())),
    remove: (id, options) =>
      instances.remove(
        id,
        options?.kept === true ? "kept" : options?.moved === true ? { why: "moved" } : undefined
      ),
    power: Effect.fn("Daemon.power")(function* (id, action, wait_seconds, by) {
      const instance = yield* instances.get(id)
      yield* instance.power(action, wait_seconds, by)
      return instance.file.get().reports.at(-1)?.sequence
    }),
    commands: Effect.fn("Daemon.commands")(function* (id, lines, by) {
      yield* sendCommands(yield* instances.get(id), lines, place, by)
    }),
    reset: Effect.fn("Daemon.reset")(function* (id) {
      const instance = yield* instances.get(id)
      yield* instance.reset
      return instance.file.get().reports.at(-1)?.sequence
    }),
    reinstall: Effect.fn("Daemon.reinstall")(function* (id) {
      yield* (yield* instances.get(id)).reinstall
    }),
    hold: Effect.fn("Daemon.hold")(function* (id, held) {
      const instance = yield* instances.get(id)
      yield* instance.hold(held)
      return heldServer(instance.file.get())
    }),
    exportFiles: Effect.fn("Daemon.exportFiles")(function* (id) {
      const { file, folder } = yield* instances.get(id)
      return yield* exportFiles(files, folder, file.get())
    }),
    status: (id) => Effect.map(instances.get(id), (instance) => instance.file.get().status),
    stats: Effect.fn("Daemon.stats")(function* (id, options) {
      const instance = yield* instances.get(id)
      return yield* Effect.mapError(stats.of(instance, options), diskRefused)
    }),
    statsOfMany: Effect.fn("Daemon.statsOfMany")((ids) =>
      Effect.map(
        Effect.forEach(
          new Set(ids),
          (id) =>
            instances.get(id).pipe(
              Effect.flatMap(stats.soon),
              Effect.catch(() => Effect.succeed(null)),
              Effect.map((found) => [id, found] as const)
            ),
          { concurrency: "unbounded" }
        ),
        Object.fromEntries
      )
    ),
    logs: Effect.fn("Daemon.logs")(function* (id, request) {
      const instance = yield* instances.get(id)
      return yield* Effect.mapError(instance.logs(request), diskRefused)
    }),
    install: (id) =>
      Effect.map(instances.get(id), (instance) => {
        const { install, spec } = instance.file.get()
        const script = spec.definition.install_script
        return {
          ...install,
          entrypoint: script?.entrypoint ?? "",
          script: script?.script ?? "",
          skip_scripts: script?.skip_scripts ?? false
        }
      }),
    installLogs: Effect.fn("Daemon.installLogs")(function* (id, request) {
      const instance = yield* instances.get(id)
      return yield* Effect.mapError(installLogs(instance, installer, request), diskRefused)
    }),
    console: Effect.fn("Daemon.console")(function* (id) {
      return yield* (yield* instances.get(id)).lines
    }),
    files: access,
    backups: yield* makeBackups({ files, instances, settings: parts.backups })
  } satisfies Daemon
})
