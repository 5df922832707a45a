/** The reasons that a known node is unavailable. */

import { Clock, Effect, Option } from "effect"
import { Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId } from "../../contract/domain/Id.ts"
import { type NodeDetail, notCallable } from "../../contract/domain/Node.ts"
import { KeyRepo, type NodeBinding } from "../store/repos/KeyRepo.ts"
import { Store } from "../store/Store.ts"
import { NodeRegistry } from "./NodeRegistry.ts"

/** Returns why no key of a node is valid, if it has keys. `now` is in milliseconds since the epoch. */
export const invalidKeyReason = (bindings: ReadonlyArray<NodeBinding>, now: number): NodeDetail["key"] => {
  const ends = bindings.map(({ expires_at, revoked_at }) =>
    revoked_at === null
      ? {
          at: expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at),
          why: "expired" as const
        }
      : { at: Date.parse(revoked_at), why: "revoked" as const }
  )
  const last = ends.toSorted((one, other) => other.at - one.at)[0]
  return last === undefined || last.at > now ? undefined : last.why
}

/** Reads {@link invalidKeyReason} of a node. Unreadable keys count as valid. */
export const makeKeyState = Effect.gen(function* () {
  const keys = yield* KeyRepo
  const store = yield* Store
  return Effect.fnUntraced(function* (node_id: NodeId) {
    const bindings = yield* Effect.orElseSucceed(store.read(keys.bindingsOf(node_id)), () => [])
    return invalidKeyReason(bindings, yield* Clock.currentTimeMillis)
  })
})

interface Absence {
  readonly reason: string
  /** The details or the next step. Without a hint, the caller waits. */
  readonly hint?: string
}

const absenceOf = ({ id, unreachable }: NodeDetail, key: NodeDetail["key"]): Absence => {
  if (unreachable !== undefined) {
    return {
      reason: `node ${id} cannot be called: ${unreachable}`,
      hint: notCallable(unreachable)
    }
  }
  if (key === undefined) return { reason: `node ${id} is not connected` }
  return {
    reason: `the key of node ${id} is ${key}`,
    hint: `Its key is ${key}: make another with \`muster keys create --scope Node --name <name>\`, set MUSTER_NODE_KEY and start the node again.`
  }
}

export const makeNodeAvailability = Effect.gen(function* () {
  const registry = yield* NodeRegistry
  const keyState = yield* makeKeyState

  const absence = Effect.fnUntraced(function* (node_id: NodeId) {
    const node = Option.getOrUndefined(yield* Effect.option(registry.get(node_id)))
    if (node === undefined || node.connected) return undefined
    return absenceOf(node, node.unreachable === undefined ? yield* keyState(node_id) : undefined)
  })

  return {
    /** Returns the reason in a few words with the node's id, if the node is unavailable. */
    unavailableReason: (node_id: NodeId) => Effect.map(absence(node_id), (found) => found?.reason),
    /** Returns the 503 of a request that needs the node. `reason` is the failure of its call. */
    notConnected: (node_id: NodeId, reason?: string) =>
      Effect.map(absence(node_id), (found) =>
        Unavailable.nodeNotConnected(
          node_id,
          found?.hint ?? (reason === undefined ? undefined : `A call to it has failed: ${reason}`)
        )
      )
  } as const
})
