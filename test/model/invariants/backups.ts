import { Schema } from "effect"
import { hasEnded, OperationState } from "../../../src/contract/domain/Operation.ts"
import { digestOf } from "../../controlPlane/servers/support/FakeBackups.ts"
import type { History, Invariant, NodeTask } from "../History.ts"

const isOperation = Schema.is(
  Schema.Struct({ operation: Schema.Struct({ id: Schema.String, state: OperationState }) })
)

/** The nodes that have lost their disks. */
export const wipedNodes = ({ nodeActions }: Pick<History, "nodeActions">): ReadonlySet<string> =>
  new Set(nodeActions.flatMap(({ node, server }) => (server === undefined ? [node] : [])))

/** A finished backup can be restored: its node has what its record says, and any replica returns it. */
export const stored: Invariant = {
  name: "every finished backup can be restored",
  problems: (history) => {
    const { end, readBackups } = history
    const wiped = wipedNodes(history)
    const nodes = new Map(end.nodes.map((node) => [node.id, node]))
    const read = new Map(readBackups.map((one) => [one.id, one]))
    return end.tables.backups.flatMap(({ figures, id, node_id, state }) => {
      if (state !== "done" || wiped.has(node_id)) return []
      const digest = nodes.get(node_id)?.backups.get(id)
      const { status, text } = read.get(id) ?? {}
      return [
        ...(digest === figures?.sha256
          ? []
          : [`${id} is done with ${figures?.sha256}; ${node_id} has ${digest ?? "no such backup"}`]),
        ...(status === undefined || (status === 200 && digestOf(text ?? "") === figures?.sha256)
          ? []
          : [`${id} is done, and reading it returns ${status}: ${text}`])
      ]
    })
  }
}

/** What a node stores belongs to a backup on record. */
export const leftovers: Invariant = {
  name: "no backup is left behind",
  problems: ({ end }) => {
    const records = new Map(end.tables.backups.map((backup) => [backup.id, backup]))
    return end.nodes.flatMap(({ backups, id: node, parts }) =>
      [...backups.keys(), ...parts]
        .filter((id) => !records.has(id))
        .map((id) => `${node} has ${id}, which has no record`)
    )
  }
}

const brief = ({ at, kind, node, operation_id, server_id }: NodeTask) =>
  `${node} began ${operation_id} (${kind} of ${server_id}) at ${at} ms`

/** An operation ends once, and its task is not begun after it was done, nor done twice. */
export const once: Invariant = {
  name: "a finished operation never runs again",
  problems: (history) => {
    const { end, nodeTasks, operationsDone } = history
    const wiped = wipedNodes(history)
    const done = new Map<string, NodeTask>()
    const ended = new Set<string>()
    return [
      ...nodeTasks.flatMap((task) => {
        const { kind, node, operation_id, what } = task
        const seen = operationsDone.get(operation_id)
        if (what === "begun" && seen !== undefined && seen < task.at)
          return [`${brief(task)}, and it was done at ${seen} ms`]
        if (what !== "done" || kind === "verify" || wiped.has(node)) return []
        const key = `${operation_id} ${kind}`
        const before = done.get(key)
        done.set(key, task)
        return before === undefined
          ? []
          : [`${brief(task)}, and it was done at ${before.at} ms on ${before.node}`]
      }),
      ...end.tables.journal.flatMap(({ cursor, payload, topic }) => {
        if (topic !== "server:operation" || !isOperation(payload)) return []
        const { id, state } = payload.operation
        if (ended.has(id)) return [`entry ${cursor}: ${id} becomes ${state} after its end`]
        if (hasEnded(state)) ended.add(id)
        return []
      })
    ]
  }
}

/** Reasons for which a task may fail: the end of a node or a server, and what callers do meanwhile. */
const excused =
  /not connected|the server (is|was)|server not found|was deleted|cannot be installed|does not have backup|no longer|cancelled/

/** A verification and a restore fail for no other reason than those that callers and faults give them. */
export const failures: Invariant = {
  name: "an operation fails for a reason",
  problems: ({ end }) =>
    end.tables.operations.flatMap(({ id, kind, reason, state }) =>
      state === "failed" && !excused.test(reason ?? "") ? [`${id} (${kind}) has failed: ${reason}`] : []
    )
}
