import { Schema } from "effect"
import { fits, ServerStatus } from "../../../src/contract/domain/ServerStatus.ts"
import { orderProblems } from "../../support/invariants.ts"
import type { Invariant } from "../History.ts"
import { undeleted } from "./kept.ts"
import { firstNodes, isInstall, newest, timelinesOf } from "./timelines.ts"

const isStatus = Schema.is(ServerStatus)
const hasPhase = Schema.is(Schema.Struct({ phase: Schema.String }))
const isPlace = Schema.is(Schema.Struct({ node_id: Schema.String }))

/** Cursors have no gap, and the entries of a server are between its creation and its deletion. */
export const order: Invariant = {
  name: "the journal is gapless, and each server has one creation and at most one deletion",
  problems: ({ end, operations }) => {
    const { counters, journal } = end.tables
    const count = counters.find(({ name }) => name === "journal")?.value
    return [
      ...(journal.at(-1)?.cursor === count
        ? []
        : [`the counter is ${count}, the last cursor ${journal.at(-1)?.cursor}`]),
      ...orderProblems(journal, undeleted({ operations }))
    ]
  }
}

/** The journal, replayed, equals the records, and every replica. */
export const state: Invariant = {
  name: "the replayed journal equals the state",
  problems: ({ end }) => {
    const { replicas, tables } = end
    const timelines = timelinesOf(tables)
    const there = [...timelines.values()].filter(({ isDeleted }) => !isDeleted).map(({ id }) => id)
    const records = new Map(tables.servers.map((server) => [server.id, server]))
    const differs = (what: string, journal: unknown, other: unknown) =>
      journal === other ? [] : [`${what}: ${other}, by the journal ${journal}`]
    const places = firstNodes(tables)
    return [
      ...differs("records", there.toSorted().join(), [...records.keys()].toSorted().join()),
      ...tables.servers.flatMap(({ id, install, node_id, start_pending, status }) => {
        const timeline = timelines.get(id)
        const installed = newest(timeline, "server:install")
        const placed = newest(timeline, "server:placed")
        return [
          ...differs(`status of ${id}`, newest(timeline, "status"), status),
          ...differs(`install of ${id}`, hasPhase(installed) ? installed.phase : "pending", install.phase),
          ...differs(`node of ${id}`, isPlace(placed) ? placed.node_id : places.get(id), node_id),
          ...(newest(timeline, "server:start-pending") === undefined || timeline?.hasReturned === true
            ? []
            : differs(`start of ${id}`, newest(timeline, "server:start-pending"), start_pending === 1))
        ]
      }),
      ...replicas.flatMap(({ servers }, replica) => [
        ...differs(
          `list of replica ${replica}`,
          there.toSorted().join(),
          servers
            .map(({ id }) => id)
            .toSorted()
            .join()
        ),
        ...servers.flatMap(({ allocations, expires_at, id, labels, node_id, status }) => [
          ...differs(
            `labels of ${id} at replica ${replica}`,
            JSON.stringify(records.get(id)?.labels ?? {}),
            JSON.stringify(labels)
          ),
          ...differs(`expiry of ${id} at replica ${replica}`, records.get(id)?.expires_at, expires_at),
          ...differs(`status of ${id} at replica ${replica}`, newest(timelines.get(id), "status"), status),
          ...differs(`node of ${id} at replica ${replica}`, records.get(id)?.node_id, node_id),
          ...differs(
            `allocations of ${id} at replica ${replica}`,
            JSON.stringify(records.get(id)?.allocations),
            JSON.stringify(allocations)
          )
        ])
      ])
    ]
  }
}

/**
 * Each status follows from the previous one by the table (spec 3.5). Some changes are not reports of a node,
 * and their entry has the reason: a server missing on its node is installed again or ends, and a failed migration
 * returns. A node that is asked to reinstall may have started the server just before: its view wins.
 */
export const transitions: Invariant = {
  name: "no illegal transition",
  problems: ({ end, operations }) => {
    const reinstalled = new Set(
      operations.flatMap(({ requested }) => (requested.kind === "reinstall" ? [requested.server] : []))
    )
    return [...timelinesOf(end.tables).values()].flatMap(({ entries, id, statuses }) =>
      statuses.flatMap(({ cursor, payload }, index) => {
        if (!isStatus(payload)) return [`entry ${cursor}: ${id} becomes ${payload}`]
        const before = statuses[index - 1]?.payload
        if (before === undefined) return payload === "installing" ? [] : [`${id} begins as ${payload}`]
        if (!isStatus(before)) return []
        const at = entries.findIndex((entry) => entry.cursor === cursor)
        if (entries[at - 1]?.topic === "server:created")
          return payload === "offline" || payload === "installing" ? [] : [`${id} comes back as ${payload}`]
        if (before === payload) return [`entry ${cursor}: ${id} is published as ${payload} twice`]
        const isLost =
          (payload === "installing" && isInstall(entries[at - 1]?.payload, "pending")) ||
          (payload === "offline" && entries[at + 1]?.topic === "deleted")
        const isStarted = before === "installing" && payload === "starting" && reinstalled.has(id)
        return fits(before, payload) || isLost || isStarted
          ? []
          : [`entry ${cursor}: ${id} goes from ${before} to ${payload}`]
      })
    )
  }
}
