import { randomBytes } from "node:crypto"
import { Context, Effect } from "effect"
import { Conflict, NotFound, type Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { RegistrationRequired } from "../../contract/nodeApi/ControlPlaneApi.ts"
import { mayUseReserve } from "../store/disk/DatabaseDisk.ts"
import { Leadership } from "../store/Leadership.ts"
import { type NodeRecord, NodeRepo } from "../store/repos/NodeRepo.ts"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"
import { Store } from "../store/Store.ts"
import { DaemonClient } from "./DaemonClient.ts"
import { appendNodeChanged, appendReachabilityChanged, Fleet } from "./fleet/Fleet.ts"
import type { FleetNode } from "./fleet/FleetNode.ts"
import { type Registered, sharedPorts } from "./registration.ts"

const TOKEN_BYTES = 32

const NAMED = 10

/** The hint of a refusal because a node owns servers. No drain removes or migrates the `stuck` ones. */
export const deleteServersFirst = (id: NodeId, stuck: ReadonlyArray<ServerId> = []): string => {
  const hint = `Delete its servers first, or migrate them: \`muster nodes drain ${id} --move\`.`
  if (stuck.length === 0) return hint
  const named = `${stuck.slice(0, NAMED).join(", ")}${stuck.length > NAMED ? ", ..." : ""}`
  return `${hint} A drain leaves servers that are not saved and whose installation has failed: delete ${named}.`
}

export const owns = (id: NodeId, servers: number, hint = deleteServersFirst(id)) =>
  Effect.fail(
    new Conflict({
      detail: `node owns ${servers === 1 ? "a server" : `${servers} servers`}: ${id}`,
      hint
    })
  )

/** The changes of nodes, each one write with its journal entry. Memory follows the journal. */
export const makeNodeWrites = Effect.fnUntraced(function* (
  refresh: (id: NodeId) => Effect.Effect<void, Unavailable>
) {
  const daemons = yield* DaemonClient
  const fleet = yield* Fleet
  const leadership = yield* Leadership
  const repo = yield* NodeRepo
  const seal = yield* TokenSeal
  const store = yield* Store

  const register = Effect.fnUntraced(function* (fresh: Registered) {
    const { id } = fresh
    const token = randomBytes(TOKEN_BYTES).toString("base64url")
    const last_seen_at = yield* nowText
    const embedded = daemons.isAttached(id)
    const unreachable = embedded || !daemons.callsOthers() ? null : ""
    const sealed = seal.seal(id, token)
    const record = { ...fresh, token: sealed, last_seen_at, drained: false, embedded, unreachable }
    yield* store.write(Effect.andThen(repo.save(record), appendNodeChanged(id, "connected")))
    const others = [...fleet.nodes].flatMap(({ listed }) => listed ?? [])
    for (const shared of sharedPorts(fresh, others)) yield* Effect.logWarning(shared)
    return { token }
  })

  /**
   * Ends the registration with this token, unless a later one replaced it. The node is disconnected at once, and lost
   * at once with `lost`, else after the heartbeat timeout.
   */
  const revoke = Effect.fn("NodeRegistry.revoke")(
    (id: NodeId, token: string, options?: { readonly lost: boolean }) => {
      const lost = options?.lost === true
      return mayUseReserve(
        store.write(
          Effect.flatMap(repo.revoke(id, token, lost), (changed) =>
            changed ? appendNodeChanged(id, lost ? "lost" : "expelled") : Effect.void
          )
        )
      )
    }
  )

  /** Records why the node of this registration is unreachable, or null. Returns whether that is a change. */
  const setUnreachable = Effect.fn("NodeRegistry.setUnreachable")(
    (id: NodeId, token: string, unreachable: string | null) =>
      store.write(
        Effect.tap(repo.setUnreachable(id, token, unreachable), (changed) =>
          changed ? appendReachabilityChanged(id) : Effect.void
        )
      )
  )

  const disconnect = Effect.fn("NodeRegistry.disconnect")(function* (id: NodeId, boot_id: string) {
    const at = yield* nowText
    const leave = Effect.gen(function* () {
      if (!(yield* repo.disconnect(id, boot_id, at))) return yield* new RegistrationRequired({ node_id: id })
      yield* appendNodeChanged(id, "disconnected")
    })
    yield* mayUseReserve(store.write(leave))
  })

  const setDrained = (id: NodeId, drained: boolean) =>
    store.write(
      Effect.gen(function* () {
        if (!(yield* repo.setDrained(id, drained))) return yield* NotFound.node(id)
        yield* appendNodeChanged(id, "drained")
      })
    )

  const remove = Effect.fnUntraced(function* ({
    node,
    record
  }: {
    readonly node: FleetNode
    readonly record: NodeRecord
  }) {
    const { id } = node
    // Servers that are being placed have no record yet.
    if (leadership.isSingle && node.servers > 0) return yield* owns(id, node.servers)
    const forget = Effect.gen(function* () {
      const servers = yield* repo.remove(id)
      if (servers === undefined) return yield* NotFound.node(id)
      if (servers > 0) return yield* owns(id, servers)
      yield* appendNodeChanged(id, "removed")
    })
    // Memory forgets the node first, so that no server is placed on it.
    fleet.forget(id)
    yield* store.write(forget).pipe(
      mayUseReserve,
      Effect.onError(() => Effect.catch(refresh(id), () => Effect.sync(() => fleet.put(record))))
    )
  })

  return { register, revoke, setUnreachable, disconnect, setDrained, remove } as const
})

export const makeTokenSeal = (secret: Uint8Array): Seal => makeSeal(secret, "node tokens")

/** The seal of node tokens. Default: a secret that ends with the process. */
export const TokenSeal: Context.Reference<Seal> = Context.Reference("muster/nodes/TokenSeal", {
  defaultValue: () => makeTokenSeal(passingSecret())
})
