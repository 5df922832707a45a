import { isEphemeral } from "../definitions.ts"
import type { History, Invariant, Operation } from "../History.ts"
import { wipedNodes } from "./backups.ts"
import { withExpiry } from "./changes.ts"
import { firstNodes, timelinesOf } from "./timelines.ts"

/** Deleted servers that a node keeps of one creator (spec 3.19). */
const MOST_KEPT = 200

type Operations = Pick<History, "operations">

const requestsOf = ({ operations }: Operations, kind: "delete" | "undelete") =>
  Map.groupBy(
    operations.filter(({ requested }) => requested.kind === kind),
    ({ requested }) => ("server" in requested ? requested.server : "")
  )

/** The servers whose undeletion was requested. */
export const undeleted = (history: Operations): ReadonlySet<string> =>
  new Set(requestsOf(history, "undelete").keys())

/** A deleted server is kept with its record, its files and in every list, or not at all. */
export const keptWhole: Invariant = {
  name: "a deleted server is kept with its record and its files, or not at all",
  problems: ({ end, nodeActions }) => {
    const { nodes, replicas, tables } = end
    const wiped = wipedNodes({ nodeActions })
    const records = new Set(tables.servers.map(({ id }) => id))
    const onRecord = new Map(tables.kept_servers.map(({ id, node_id }) => [id, node_id]))
    const has = new Map(nodes.map(({ id, kept }) => [id, new Set(kept)]))
    const listed = [...onRecord.keys()].toSorted().join()
    return [
      ...[...onRecord].flatMap(([id, node]) => [
        ...(wiped.has(node) || has.get(node)?.has(id) === true
          ? []
          : [`${id} is kept on record, and ${node} has no files of it`]),
        ...(records.has(id) ? [`${id} is kept, and has a record`] : [])
      ]),
      ...nodes.flatMap(({ id: node, kept }) =>
        kept
          .filter((id) => onRecord.get(id) !== node)
          .map((id) => `${node} keeps ${id}, which is not on record`)
      ),
      ...replicas.flatMap(({ deleted }, replica) =>
        deleted.toSorted().join() === listed
          ? []
          : [`replica ${replica} lists ${deleted.toSorted().join()} as deleted; on record: ${listed}`]
      )
    ]
  }
}

/** Whether a deletion or its repetition may have removed the files for good. */
const mayPurge = ({ requested }: Operation) => requested.kind === "delete" && requested.purge === true

/** The servers that certainly had run before the first request to delete them. */
const haveRun = ({ operations }: Operations): ReadonlySet<string> => {
  const first = new Map<string, number>()
  const ran = new Set<string>()
  for (const { ended, requested, sent, status } of operations.toSorted((a, b) => a.sent - b.sent)) {
    if (requested.kind === "delete" && !first.has(requested.server)) first.set(requested.server, sent)
    // Only a running server gets a line.
    if (requested.kind !== "commands" || status !== 204) continue
    if (ended < (first.get(requested.server) ?? Number.POSITIVE_INFINITY)) ran.add(requested.server)
  }
  return ran
}

/** A server that has run is kept at its deletion until its time, unless a request or a wiped disk ends it. */
export const keptUntil: Invariant = {
  name: "a deleted server is kept until its purge time",
  problems: (history) => {
    const { end, keepSeconds } = history
    // A clock that was set may have ended it.
    if (keepSeconds < 3_600) return []
    const wiped = wipedNodes(history)
    const deletions = requestsOf(history, "delete")
    const mayReturn = undeleted(history)
    const mayExpire = withExpiry(history)
    const ran = haveRun(history)
    const kept = new Set(end.tables.kept_servers.map(({ id }) => id))
    const isFull = Map.groupBy(end.tables.kept_servers, ({ node_id }) => node_id)
    if ([...isFull.values()].some((all) => all.length >= MOST_KEPT)) return []
    const nodes = firstNodes(end.tables)
    return [...timelinesOf(end.tables).values()].flatMap(({ blueprint_id, entries, id, isDeleted }) => {
      const has = (topic: string) => entries.some((entry) => entry.topic === topic)
      if (!isDeleted || !ran.has(id) || isEphemeral({ blueprint_id }) || has("server:move")) return []
      if (mayReturn.has(id) || mayExpire.has(id) || deletions.get(id)?.some(mayPurge) === true) return []
      return wiped.has(nodes.get(id) ?? "") || kept.has(id)
        ? []
        : [`${id} has run, was deleted, and is not kept`]
    })
  }
}

/** Only an undeletion brings a deleted server back. */
export const returns: Invariant = {
  name: "a deleted server comes back by an undeletion only",
  problems: (history) => {
    const requests = requestsOf(history, "undelete")
    return [...timelinesOf(history.end.tables).values()].flatMap(({ entries, id }) => {
      const times = entries.filter(({ topic }) => topic === "server:created").length - 1
      const possible = (requests.get(id) ?? []).filter(({ status }) => status !== 404).length
      const certain = (requests.get(id) ?? []).filter(({ status }) => status === 202).length
      return times <= possible && times >= certain
        ? []
        : [
            `${id} came back ${times} times; ${certain} undeletions were acknowledged, ${possible} may have been made`
          ]
    })
  }
}
