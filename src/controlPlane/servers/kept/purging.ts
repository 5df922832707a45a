import { Clock, Effect, Latch, Layer } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { type KeptServer, KeptServerRepo } from "../../store/repos/KeptServerRepo.ts"
import { Store } from "../../store/Store.ts"
import { makePurge } from "./KeptServers.ts"

/** The pause between two looks at the clock, unless a server is placed before. */
const PAUSE = "10 seconds"
/** Servers that one look purges for their time. */
const AT_ONCE = 100

/** Changes after which a node may need the disk of its kept servers. */
const TAKES_DISK: ReadonlySet<string> = new Set([
  "server:created",
  "server:changed",
  "server:placed",
  "deleted"
])

/** Purges deleted servers on the leader: after their time, or the oldest if their node needs the disk (spec 3.19). */
export const KeptServerPurges = Layer.effectDiscard(
  Effect.gen(function* () {
    const balancer = yield* LoadBalancer
    const kept = yield* KeptServerRepo
    const leadership = yield* Leadership
    const purge = yield* makePurge
    const store = yield* Store
    const changed = yield* Latch.make(false)
    yield* followChanges("controllers", (change) => {
      if (TAKES_DISK.has(change.topic)) changed.openUnsafe()
    })

    const purgeFor = (reason: string) => (server: KeptServer) =>
      mayUseReserve(purge(server)).pipe(
        Effect.tap((purged) =>
          purged ? Effect.logInfo(`a deleted server is purged: ${reason}`) : Effect.void
        ),
        Effect.annotateLogs({ server_id: server.id, node_id: server.node_id })
      )

    const makeRoom = Effect.fnUntraced(function* (node_id: NodeId, used: number) {
      let left = used - Math.max(0, yield* balancer.freeDisk(node_id))
      while (left > 0) {
        const oldest = yield* store.read(kept.oldestOn(node_id))
        if (oldest._tag === "None") return
        yield* purgeFor("its node needs the disk")(oldest.value)
        left -= oldest.value.disk_bytes
      }
    })

    const look = Effect.gen(function* () {
      changed.closeUnsafe()
      const due = yield* store.read(kept.due(yield* Clock.currentTimeMillis, AT_ONCE))
      yield* Effect.forEach(due, purgeFor("its time is over"), { discard: true })
      for (const { disk_bytes, node_id } of yield* store.read(kept.diskByNode)) {
        yield* makeRoom(node_id, disk_bytes)
      }
    }).pipe(Effect.catch(({ detail }) => Effect.logDebug(`deleted servers were not looked at: ${detail}`)))
    const round = Effect.andThen(look, Effect.raceFirst(changed.await, Effect.sleep(PAUSE)))
    yield* leadership.whileLeader(Effect.forever(round))
  })
)
