import { writeFileSync } from "node:fs"
import { gzipSync } from "node:zlib"
import { Console, Effect, Option, Stream } from "effect"
import { Argument, Command } from "effect/cli"
import * as Tar from "effect/encoding/Tar"
import { version as ownVersion } from "../app/version.ts"
import type { SettingView } from "../contract/domain/Node.ts"
import { commandSettings } from "../shared/config/command.ts"
import { command, switchFlag, textArgument } from "./shared/command.ts"
import { CommandError, whyNoFile } from "./shared/failures.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { allNodes } from "./shared/named.ts"
import { type Listing, outputFlags, printList } from "./shared/output.ts"
import { note } from "./shared/terminal.ts"

const listing: Listing<SettingView> = {
  columns: {
    setting: ({ name }) => name,
    value: ({ value }) => value ?? "(secret)",
    source: ({ source }) => source
  }
}

/** `muster config`: the settings that a running service has read. */
export const config = command("config", {
  description:
    "Show the settings that the running service has read at its start, and where each value is from: default, environment or file. Secrets are hidden. Needs a key of scope AppAdmin.",
  settings: commandSettings,
  short: "Show the configuration that the service runs with",
  examples: {
    "muster config --changed": "What differs from the defaults",
    "muster config --json": "All settings, for programs"
  },
  input: {
    changed: switchFlag("changed", "Only settings that differ from their defaults"),
    ...outputFlags
  },
  *run({ changed, ...flags }) {
    const all = yield* ask((muster) => muster.system.settings())
    const shown = changed ? all.filter(({ source }) => source !== "default") : all
    yield* printList(flags, listing, shown, "All settings have their defaults.")
  }
}).pipe(Command.provide(CommandClient))

/** `muster version`: the version of this command and of the service. */
export const version = command("version", {
  description:
    "Show the version of this command, then that of the service. Ends with 5 if the service cannot be reached; `muster --version` asks no service.",
  short: "Show the versions of this command and of the service",
  examples: {
    "muster version": "Both versions",
    "muster --version": "Of the command alone"
  },
  input: {},
  *run() {
    yield* Console.log(`muster ${ownVersion}`)
    const { version: running } = yield* ask((muster) => muster.system.info())
    yield* Console.log(`service ${running}`)
  }
}).pipe(Command.provide(CommandClient))

const fileOf = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`

const asked = <A, E extends object, R>(use: Parameters<typeof ask<A, E, R>>[0]) =>
  Effect.map(ask(use), fileOf)

const parts = {
  "version.json": Effect.map(
    ask((muster) => muster.system.info()),
    (service) => fileOf({ command: ownVersion, service })
  ),
  "settings.json": asked((muster) => muster.system.settings()),
  "nodes.json": Effect.map(
    Effect.flatMap(allNodes, (nodes) =>
      Effect.forEach(nodes, ({ id }) => ask((muster) => muster.nodes.get({ params: { node: id } })))
    ),
    fileOf
  ),
  "warnings.json": asked((muster) => muster.blueprints.warnings()),
  "sources.json": asked((muster) => muster.blueprints.sources()),
  "log.txt": Effect.map(
    ask((muster) => muster.system.log()),
    (lines) => `${lines.join("\n")}\n`
  ),
  "metrics.txt": ask((muster) => muster.metrics.page())
} as const

const cannotWrite = (file: string) => (cause: unknown) =>
  CommandError.failed(`cannot write ${file}: ${whyNoFile(cause)}`)

const write = Effect.fnUntraced(function* (archive: string, files: ReadonlyArray<readonly [string, string]>) {
  const chunks = yield* Stream.fromIterable(files.map(([name, text]) => Tar.file(name, text))).pipe(
    Stream.pipeThroughChannel(Tar.encode()),
    Stream.runCollect,
    Effect.mapError(cannotWrite(archive))
  )
  yield* Effect.try({
    try: () => writeFileSync(archive, gzipSync(Buffer.concat(chunks)), { flag: "wx", mode: 0o600 }),
    catch: cannotWrite(archive)
  })
})

/** `muster debug`: an archive for a bug report. */
export const debug = command("debug", {
  description:
    "Write an archive (.tar.gz) for a bug report: settings without secrets, nodes, warnings, sources, the last 1,000 lines of the log, and metrics. Read it before you pass it on: it has names and addresses. Needs a key of scope AppAdmin.",
  settings: commandSettings,
  short: "Write an archive for a bug report",
  examples: {
    "muster debug": "Into a new file of this folder",
    "muster debug report.tar.gz && tar tzf report.tar.gz": "And list its files"
  },
  input: {
    archive: textArgument("archive", "A new file; default: muster-debug-TIME.tar.gz in this folder").pipe(
      Argument.optional
    )
  },
  *run({ archive }) {
    const time = new Date().toISOString().replaceAll(/[:.]/g, "-")
    const file = Option.getOrElse(archive, () => `muster-debug-${time}.tar.gz`)
    const files: Array<readonly [string, string]> = []
    for (const [name, part] of Object.entries(parts)) {
      yield* note(name)
      files.push([name, yield* part])
    }
    yield* write(file, files)
    yield* Console.log(file)
  }
}).pipe(Command.provide(CommandClient))
