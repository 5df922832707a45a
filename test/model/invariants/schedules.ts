import { Schema } from "effect"
import type { Invariant } from "../History.ts"

const isBackup = Schema.is(
  Schema.Struct({ id: Schema.String, server_id: Schema.String, name: Schema.optionalKey(Schema.String) })
)

const repeated = (items: ReadonlyArray<string>) =>
  items.filter((item, index) => items.indexOf(item) !== index)

/** The lines of a step that writes to the console. */
const linesOf = (steps: ReadonlyArray<unknown>): ReadonlyArray<string> =>
  steps.flatMap((step) =>
    typeof step === "object" && step !== null && "command" in step && Array.isArray(step.command)
      ? step.command.map(String)
      : []
  )

const hasBackup = (steps: ReadonlyArray<unknown>) =>
  steps.some((step) => typeof step === "object" && step !== null && "backup" in step)

/**
 * A run of a schedule exists once. A server that has done its steps has a backup of each backup step, and none more than
 * it has runs; a line is written at least once.
 */
export const runs: Invariant = {
  name: "a run of a schedule exists once, and does each step",
  problems: ({ end: { nodes, tables } }) => {
    const servers = Map.groupBy(tables.schedule_run_servers, ({ run_id }) => run_id)
    const lines = nodes.flatMap((node) => node.lines)
    const made = new Map<string, Set<string>>()
    for (const { payload, topic } of tables.journal) {
      if (topic !== "server:backup" || !isBackup(payload) || payload.name === undefined) continue
      made.set(payload.name, (made.get(payload.name) ?? new Set()).add(payload.id))
    }
    const times = tables.schedule_runs.map(({ due_at, schedule_id }) => `${schedule_id} at ${due_at}`)
    return [
      ...repeated(times).map((time) => `there are two runs of ${time}`),
      ...tables.schedules.flatMap(({ id, settings: { name, steps } }) => {
        const own = tables.schedule_runs.filter(({ schedule_id }) => schedule_id === id)
        const rows = own.flatMap((run) => servers.get(run.id) ?? [])
        const done = rows.filter(({ state }) => state === "done")
        const half = done.filter(({ step }) => step !== steps.length)
        const backups = made.get(name)?.size ?? 0
        const missing = linesOf(steps).filter(
          (line) => lines.filter((one) => one === line).length < done.length
        )
        return [
          ...half.map(({ run_id, step }) => `run ${run_id} is done at step ${step} of ${steps.length}`),
          ...missing.map((line) => `${done.length} runs of ${id} are done; too few lines "${line}"`),
          ...(hasBackup(steps) && (backups < done.length || backups > rows.length)
            ? [`${id} has ${backups} backups of ${rows.length} runs; ${done.length} are done`]
            : [])
        ]
      })
    ]
  }
}
