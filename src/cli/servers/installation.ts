/** The installation of a server while it runs: its steps, and the output of its script. */
import { Console, Effect, Schedule } from "effect"
import type { InstallStep } from "../../contract/domain/InstallState.ts"
import { escapeText } from "../../contract/domain/NodeText.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { command, followFlag } from "../shared/command.ts"
import { withCommands } from "../shared/failures.ts"
import { ask, whileReachable } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { note } from "../shared/terminal.ts"
import { shortDuration } from "../shared/times.ts"

const PAUSE = "500 millis"

const PAGE = 1000

const secondsOf = ({ finished_at, started_at }: InstallStep): number =>
  finished_at === undefined ? 0 : (Date.parse(finished_at) - Date.parse(started_at)) / 1000

/** @param failed whether the installation ended with the step */
const lineOf = (step: InstallStep, failed: boolean): string => {
  if (failed) return `${step.name}: failed`
  if (step.finished_at !== undefined) return `${step.name}: done in ${shortDuration(secondsOf(step))}`
  return step.progress === undefined
    ? `${step.name} ...`
    : `${step.name}: ${Math.floor(step.progress * 10) * 10} %`
}

/** Returns the lines of the installation's output from `from` on, without characters that act on a terminal. */
const installLines = Effect.fnUntraced(function* (server: Server["id"], from: number) {
  const lines: Array<string> = []
  while (true) {
    const at = from + lines.length
    const page = Math.floor(at / PAGE) + 1
    const { data } = yield* ask((muster) =>
      muster.servers.installLogs({
        params: { server },
        query: { page: String(page), per_page: String(PAGE) }
      })
    )
    const fresh = data.slice(at % PAGE)
    lines.push(...fresh.map(escapeText))
    if (data.length < PAGE) return lines
  }
})

/**
 * Makes the effect that prints an installation's news and returns whether it is over.
 * @param isUp whether the server runs
 */
export const installationPrinter = (
  server: Server["id"],
  print: (line: string) => Effect.Effect<void> = (line) => Console.error(`  ${line}`),
  isUp: () => boolean = () => true
) => {
  const shown = new Map<string, string>()
  let printed = 0
  return Effect.gen(function* () {
    const report = yield* ask((muster) =>
      muster.servers.install({ params: { server }, query: { script: false } })
    )
    for (const step of report.steps ?? []) {
      if (step.name === "start" && step.finished_at !== undefined && !isUp()) continue
      const line = lineOf(step, report.phase === "failed" && step === report.steps?.at(-1))
      if (shown.get(step.name) === line) continue
      shown.set(step.name, line)
      yield* note(line)
    }
    if (report.waiting_reason !== undefined && shown.get("waiting") !== report.waiting_reason) {
      shown.set("waiting", report.waiting_reason)
      yield* note(`waiting: ${withCommands(report.waiting_reason)}`)
    }
    if (report.phase !== "pending") {
      const lines = yield* installLines(server, printed)
      printed += lines.length
      yield* Effect.forEach(lines, print, { discard: true })
    }
    return report.phase === "ready" || report.phase === "failed"
  })
}

/** Repeats an {@link installationPrinter} until the phase is `ready` or `failed`. */
export const followInstallation = (once: ReturnType<typeof installationPrinter>) =>
  // A node or a service that is away for a moment does not end the installation.
  Effect.repeat(
    Effect.catchIf(
      once,
      ({ status }) => status === "refused" || status === "unreachable",
      () => Effect.succeed(false)
    ),
    { schedule: Schedule.spaced(PAUSE), until: (isOver) => isOver }
  ).pipe(whileReachable)

export const installLog = command("install-log", {
  description:
    "Print the output of a server's installation. Standard error has the phase, and the reason of a failure.",
  examples: {
    "muster servers install-log survival-1": "After a failed installation",
    "muster servers install-log k7f -f": "While it runs, with its steps"
  },
  input: {
    server: serverArgument,
    follow: followFlag("Follow an installation to its end")
  },
  *run({ follow, server }) {
    const { id } = yield* serverNamed(server)
    if (follow) yield* followInstallation(installationPrinter(id, Console.log))
    else yield* Effect.forEach(yield* installLines(id, 0), (line) => Console.log(line), { discard: true })
    const report = yield* ask((muster) =>
      muster.servers.install({ params: { server: id }, query: { script: false } })
    )
    const { failure_reason, phase } = report
    yield* note(failure_reason === undefined ? phase : `${phase}: ${withCommands(failure_reason)}`)
  }
})
