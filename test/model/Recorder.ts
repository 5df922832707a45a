/** Records the history in memory and line by line in a file, which is kept if a violation is found. */
import { closeSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Exit } from "effect"
import type { Disturbance, NodeAction, NodeTask, Operation } from "./History.ts"

/** Lines per write. */
const BATCH = 200

export const makeRecorder = Effect.fnUntraced(function* (seed: number) {
  const path = join(tmpdir(), `muster-model-${seed}-${process.pid}.jsonl`)
  let began = performance.now()
  const now = () => Math.round(performance.now() - began)
  const operations: Array<Operation> = []
  const intrusions: Array<Operation> = []
  const disturbances: Array<Disturbance> = []
  const nodeActions: Array<NodeAction> = []
  const nodeTasks: Array<NodeTask> = []
  const operationsDone = new Map<string, number>()
  let lines: Array<string> = []
  let keep = false
  const file = yield* Effect.acquireRelease(
    Effect.sync(() => openSync(path, "w")),
    (open, exit) =>
      Effect.sync(() => {
        flush(open)
        closeSync(open)
        if (!keep && Exit.isSuccess(exit)) rmSync(path)
      })
  )
  const flush = (to: number) => {
    if (lines.length > 0) writeSync(to, `${lines.join("\n")}\n`)
    lines = []
  }
  const line = (what: object) => {
    lines.push(JSON.stringify({ at: now(), ...what }))
    if (lines.length >= BATCH) flush(file)
  }

  return {
    path,
    now,
    /** Starts the clock of the history. */
    begin: () => {
      began = performance.now()
    },
    line,
    operations,
    intrusions,
    disturbances,
    nodeActions,
    nodeTasks,
    operationsDone,
    operation: (operation: Omit<Operation, "n">) => {
      const whole = { n: operations.length, ...operation }
      operations.push(whole)
      const { ids, ...brief } = whole
      line(ids === undefined ? brief : { ...brief, ids: ids.length })
      return whole
    },
    intrusion: (operation: Omit<Operation, "n">) => {
      const n = intrusions.push({ n: intrusions.length, ...operation }) - 1
      line({ n, ...operation })
    },
    /** Records a fault; the returned function records that it is healed. */
    disturbed: (disturbance: Omit<Disturbance, "from" | "to">) => {
      const from = now()
      line({ broken: disturbance.name })
      const at = disturbances.push({ ...disturbance, from, to: Number.POSITIVE_INFINITY }) - 1
      return () => {
        line({ whole: disturbance.name })
        disturbances[at] = { ...disturbance, from, to: now() }
      }
    },
    nodeAction: (nodeAction: Omit<NodeAction, "at">) => {
      nodeActions.push({ at: now(), ...nodeAction })
      line({ nodeAction })
    },
    nodeTask: (nodeTask: Omit<NodeTask, "at">) => {
      nodeTasks.push({ at: now(), ...nodeTask })
      line({ nodeTask })
    },
    /** Records that operations were seen as done. */
    done: (ids: ReadonlyArray<string>) => {
      for (const id of ids) if (!operationsDone.has(id)) operationsDone.set(id, now())
    },
    /** Keeps the file after the run, with further files of the given extensions. */
    keepFile: (beside: Readonly<Record<string, string>>) => {
      keep = true
      for (const [ending, text] of Object.entries(beside)) writeFileSync(`${path}.${ending}`, text)
    }
  }
})

export type Recorder = Effect.Success<ReturnType<typeof makeRecorder>>
