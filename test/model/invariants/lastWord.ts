import { isEphemeral } from "../definitions.ts"
import type { Asked, History, Invariant, Operation } from "../History.ts"
import { sentKey } from "../Snapshot.ts"
import { firstNodes, givenUp, newest, storiesOf } from "./stories.ts"

/** The final status of a power action. */
const ends: Readonly<Record<string, string>> = {
  start: "running",
  restart: "running",
  unpause: "running",
  pause: "paused",
  stop: "offline",
  kill: "offline"
}

const isEnd = (asked: Asked): boolean => asked.kind === "power" && ends[asked.action] === "offline"

/** Statuses after which certainly nothing was changed. */
const REFUSED: ReadonlyArray<number> = [404, 409]

/** Servers whose changes are all known, and were all requested by clients. */
const isCertain = ({ deeds, operations, end }: History) => {
  const wild = new Set<string>()
  const wiped = new Set(deeds.flatMap(({ node, server }) => (server === undefined ? [node] : [])))
  for (const { server } of deeds) if (server !== undefined) wild.add(server)
  for (const { asked, status } of operations) {
    if (asked.kind === "reinstall" || asked.kind === "reset" || asked.kind === "delete")
      wild.add(asked.server)
    if (asked.kind === "power" && status !== 200 && !REFUSED.includes(status ?? 0)) wild.add(asked.server)
  }
  for (const { server_id, topic } of end.tables.journal) if (topic === "server:move") wild.add(server_id)
  const lost = givenUp(end.tables)
  return (id: string, node: string) => !wild.has(id) && !wiped.has(node) && !lost.has(node)
}

/** The final status of a server is that of its last acknowledged power action. */
export const lastWord: Invariant = {
  name: "the last word counts",
  problems: (history) => {
    const { end, operations } = history
    const certain = isCertain(history)
    const stories = storiesOf(end.tables)
    const places = firstNodes(end.tables)
    const words = Map.groupBy(
      operations.filter(({ asked, status }) => asked.kind === "power" && status === 200),
      ({ asked }) => (asked.kind === "power" ? asked.server : "")
    )
    return [...words].flatMap(([id, accepted]) => {
      const story = stories.get(id)
      if (story === undefined || !certain(id, places.get(id) ?? "")) return []
      const last: Operation | undefined = accepted.toSorted((a, b) => a.sent - b.sent).at(-1)
      // Of two concurrent actions, either may be the last.
      if (last?.asked.kind !== "power" || accepted.some(({ ended, n }) => n !== last.n && ended >= last.sent))
        return []
      const expected = ends[last.asked.action]
      // A server that is not saved ends for good when it stops, also if its node has started it again since.
      const hasEnded = isEphemeral(story) && accepted.some(({ asked }) => isEnd(asked))
      if (story.isDeleted) return hasEnded ? [] : [`${id} is deleted after ${last.asked.action} (${last.n})`]
      const now = newest(story, "status")
      return now === expected ? [] : [`${id} is ${now} after ${last.asked.action} (operation ${last.n})`]
    })
  }
}

/** A server that was to be started once installed was started, unless a later request contradicts it. */
export const started: Invariant = {
  name: "what was to be started runs",
  problems: (history) => {
    const { end, operations } = history
    const certain = isCertain(history)
    const spoken = new Set(operations.flatMap(({ asked }) => (asked.kind === "power" ? [asked.server] : [])))
    const toStart = new Set(
      operations.flatMap(({ asked }) =>
        asked.kind === "create" && asked.body.start === true ? [asked.key] : []
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
