import { isEphemeral } from "../definitions.ts"
import type { Asked, History, Invariant, Operation } from "../History.ts"
import { sentKey } from "../Snapshot.ts"
import { firstNodes, givenUp, newest, storiesOf } from "./stories.ts"

/** What a power action leads to in the end. */
const ends: Readonly<Record<string, string>> = {
  start: "running",
  restart: "running",
  unpause: "running",
  pause: "paused",
  stop: "offline",
  kill: "offline"
}

const isEnd = (asked: Asked): boolean => asked.kind === "power" && ends[asked.action] === "offline"

/** Answers after which it is certain that nothing was done. */
const REFUSED: ReadonlyArray<number> = [404, 409]

/** Servers that only clients have moved, in ways that are known. */
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

/** A server is in the end what the last power action that was acknowledged has asked for. */
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
      // Two at a time: either may be the last.
      if (last?.asked.kind !== "power" || accepted.some(({ ended, n }) => n !== last.n && ended >= last.sent))
        return []
      const expected = ends[last.asked.action]
      // One that is not saved ends for good when it ends, also where its node has started it once more since.
      const hasEnded = isEphemeral(story) && accepted.some(({ asked }) => isEnd(asked))
      if (story.isDeleted) return hasEnded ? [] : [`${id} is deleted after ${last.asked.action} (${last.n})`]
      const now = newest(story, "status")
      return now === expected ? [] : [`${id} is ${now} after ${last.asked.action} (operation ${last.n})`]
    })
  }
}

/** A server that was to be started once installed was, where nobody has said anything else of it since. */
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
