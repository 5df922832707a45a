import { isEphemeral } from "../definitions.ts"
import type { ClientRequest, History, Invariant, Operation } from "../History.ts"
import { sentKey } from "../Snapshot.ts"
import { withExpiry } from "./changes.ts"
import { firstNodes, givenUp, isInstall, newest, timelinesOf } from "./timelines.ts"

/** The final status of a power action. */
const ends: Readonly<Record<string, string>> = {
  start: "running",
  restart: "running",
  unpause: "running",
  pause: "paused",
  stop: "offline",
  kill: "offline"
}

const isEnd = (requested: ClientRequest): boolean =>
  requested.kind === "power" && ends[requested.action] === "offline"

/** Statuses after which certainly nothing was changed. */
const REFUSED: ReadonlyArray<number> = [404, 409]

/** Servers whose changes are all known, and were all requested by clients. */
const isCertain = ({ nodeActions, operations, end }: History) => {
  const wild = new Set(withExpiry({ operations }))
  const wiped = new Set(nodeActions.flatMap(({ node, server }) => (server === undefined ? [node] : [])))
  for (const { server } of nodeActions) if (server !== undefined) wild.add(server)
  for (const { requested, status } of operations) {
    // A rollout restarts servers.
    if (requested.kind === "roll-out") for (const id of requested.body.selector.ids) wild.add(id)
    if (requested.kind === "upgrade") wild.add(requested.server)
    if (requested.kind === "restore") wild.add(requested.server)
    // Its steps have power actions.
    if (requested.kind === "schedule") wild.add(requested.body.server_id)
    if (requested.kind === "reinstall" || requested.kind === "reset" || requested.kind === "delete")
      wild.add(requested.server)
    if (requested.kind === "power" && status !== 200 && !REFUSED.includes(status ?? 0))
      wild.add(requested.server)
  }
  for (const { server_id, topic } of end.tables.journal) if (topic === "server:move") wild.add(server_id)
  const lost = givenUp(end.tables)
  return (id: string, node: string) => !wild.has(id) && !wiped.has(node) && !lost.has(node)
}

/** The final status of a server is that of its last acknowledged power action. */
export const lastPowerAction: Invariant = {
  name: "the last power action decides the status",
  problems: (history) => {
    const { end, operations } = history
    const certain = isCertain(history)
    const timelines = timelinesOf(end.tables)
    const places = firstNodes(end.tables)
    const words = Map.groupBy(
      operations.filter(({ requested, status }) => requested.kind === "power" && status === 200),
      ({ requested }) => (requested.kind === "power" ? requested.server : "")
    )
    return [...words].flatMap(([id, accepted]) => {
      const timeline = timelines.get(id)
      if (timeline === undefined || !certain(id, places.get(id) ?? "")) return []
      const last: Operation | undefined = accepted.toSorted((a, b) => a.sent - b.sent).at(-1)
      // Of two concurrent actions, either may be the last.
      if (
        last?.requested.kind !== "power" ||
        accepted.some(({ ended, n }) => n !== last.n && ended >= last.sent)
      )
        return []
      const expected = ends[last.requested.action]
      // A server that is not saved ends for good when it stops, also if its node has started it again since.
      const hasEnded = isEphemeral(timeline) && accepted.some(({ requested }) => isEnd(requested))
      if (timeline.isDeleted)
        return hasEnded ? [] : [`${id} is deleted after ${last.requested.action} (${last.n})`]
      // A start during an installation is accepted, and has no effect if the installation fails.
      const isFailed = isInstall(newest(timeline, "server:install"), "failed")
      if (isFailed && expected === "running") return []
      const now = newest(timeline, "status")
      return now === expected ? [] : [`${id} is ${now} after ${last.requested.action} (operation ${last.n})`]
    })
  }
}

/** A server that was to be started once installed was started, unless a later request contradicts it. */
export const started: Invariant = {
  name: "every server to be started runs",
  problems: (history) => {
    const { end, operations } = history
    const certain = isCertain(history)
    const spoken = new Set(
      operations.flatMap(({ requested }) => (requested.kind === "power" ? [requested.server] : []))
    )
    const toStart = new Set(
      operations.flatMap(({ requested }) =>
        requested.kind === "create" && requested.body.start === true && !requested.body.from_backup
          ? [requested.key]
          : []
      )
    )
    const keys = new Map(end.tables.idempotency.map(({ key, response }) => [response.id, sentKey(key)]))
    return end.tables.servers.flatMap(({ id, install, node_id, status }) => {
      const isCalm = certain(id, node_id) && !spoken.has(id) && install.phase === "ready"
      return isCalm && toStart.has(keys.get(id) ?? "") && status !== "running"
        ? [`${id} is ${status}, and was to be started`]
        : []
    })
  }
}
