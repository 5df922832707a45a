/** The nodes with their load, which no stream has: they are read every few seconds while the page is visible. */
import { signal } from "@preact/signals"
import { get, segment, whileVisible } from "../api/http.ts"
import type { NodeDetail } from "../api/types.ts"
import { reconnect, suspectDead } from "./live.ts"

const EVERY = 5000

const AT_ONCE = 4

export const nodes = signal<ReadonlyArray<NodeDetail>>([])
export const areNodesLoaded = signal(false)
/** The time of the last reading, in milliseconds. */
export const nodesReadAt = signal(Date.now())

export const readNodes = async (): Promise<void> => {
  const ids = await get<ReadonlyArray<string>>("/api/nodes?ids_only=true")
  if (!ids.ok) {
    if (ids.code === 0) suspectDead()
    return
  }
  // The service is there: no need to wait for the next attempt.
  reconnect()
  const waiting = [...ids.body]
  const found: Array<NodeDetail> = []
  const reader = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const reply = await get<NodeDetail>(`/api/nodes/${segment(id)}`)
      if (reply.ok) found.push(reply.body)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, reader))
  nodes.value = found.toSorted(
    (one, other) => one.name.localeCompare(other.name) || (one.id < other.id ? -1 : 1)
  )
  nodesReadAt.value = Date.now()
  areNodesLoaded.value = true
}

/** Reads the nodes now and every few seconds; returns the end of it. */
export const followNodes = (): (() => void) => {
  void readNodes()
  return whileVisible(EVERY, readNodes)
}
