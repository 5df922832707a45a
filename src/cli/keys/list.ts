import { DateTime, Effect } from "effect"
import { Command } from "effect/cli"
import { CommandStore } from "../../app/storage.ts"
import type { KeyLimits } from "../../domain/KeyLimits.ts"
import { ApiKeys } from "../../keys/ApiKeys.ts"
import type { KeyRecord } from "../../store/repos/KeyRepo.ts"
import { NodeKeyRepo } from "../../store/repos/NodeKeyRepo.ts"
import { NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { type Listing, outputFlags, printList } from "../shared/output.ts"
import { keysOver } from "./keysOver.ts"

/** A key in the list. Times RFC 3339 UTC. */
interface ListedKey extends Omit<KeyRecord, "hash"> {
  readonly state: "valid" | "expired" | "revoked"
  /** The node of the key; null: none. */
  readonly node_id: string | null
  /** The last heartbeat of that node in the database: at most a minute too early. */
  readonly last_seen_at: string | null
}

const stateOf = ({ expires_at, revoked_at }: KeyRecord, now: number): ListedKey["state"] => {
  if (revoked_at !== null) return "revoked"
  return expires_at !== null && Date.parse(expires_at) <= now ? "expired" : "valid"
}

/** Returns the later of two times, if any. */
const later = (one: string | null, other: number | undefined): string | null =>
  other === undefined || (one !== null && Date.parse(one) >= other) ? one : new Date(other).toISOString()

/** The last heartbeat of each node in the database. */
const lastHeartbeats = Effect.gen(function* () {
  const repo = yield* NodeRepo
  const store = yield* Store
  const heartbeats = yield* store.read(repo.heartbeats)
  const heard_at = new Map(heartbeats.map((heartbeat) => [heartbeat.node_id, heartbeat.heard_at]))
  const nodes = yield* store.read(repo.all)
  return new Map(nodes.map(({ id, last_seen_at }) => [id, later(last_seen_at, heard_at.get(id))]))
})

const listed = Effect.gen(function* () {
  const store = yield* Store
  const records = yield* (yield* ApiKeys).list
  const bindings = yield* store.read((yield* NodeKeyRepo).bindings)
  const lastSeen = yield* lastHeartbeats
  const nodes = new Map(bindings.map(({ key_id, node_id }) => [key_id, node_id]))
  const now = DateTime.toEpochMillis(yield* DateTime.now)
  return records.map(({ hash, ...record }): ListedKey => {
    const state = stateOf({ hash, ...record }, now)
    const node_id = nodes.get(record.id) ?? null
    // The node of a key that is no longer valid may have another key.
    const last_seen_at = state === "valid" && node_id !== null ? (lastSeen.get(node_id) ?? null) : null
    return { ...record, state, node_id, last_seen_at }
  })
})

const limitsText = ({ blueprints, labels, max_memory, max_servers, servers }: KeyLimits): string =>
  [
    ...(servers === undefined ? [] : [`servers ${servers.join()}`]),
    ...(blueprints === undefined ? [] : [`blueprints ${blueprints.join()}`]),
    ...Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`),
    ...(max_servers === undefined ? [] : [`at most ${max_servers} servers`]),
    ...(max_memory === undefined ? [] : [`at most ${max_memory} MiB`])
  ].join(", ")

const scopeOf = ({ allow, scope, ...limits }: ListedKey): string => {
  const rights = allow === undefined ? scope : `${scope}: ${allow.join()}`
  const limited = limitsText(limits)
  return limited === "" ? rights : `${rights} (${limited})`
}

const stateText = ({ expires_at, revoked_at, state }: ListedKey): string => {
  if (state === "valid") return expires_at === null ? state : `valid until ${expires_at}`
  return state === "revoked" ? `revoked ${revoked_at}` : `expired ${expires_at}`
}

const listing: Listing<ListedKey> = {
  id: ({ id }) => id,
  columns: [
    { name: "id", of: ({ id }) => id },
    { name: "scope", of: scopeOf },
    { name: "state", of: stateText },
    { name: "name", of: ({ name }) => name },
    { name: "node", of: ({ node_id }) => node_id ?? "" },
    { name: "seen", of: ({ last_seen_at }) => last_seen_at ?? "" },
    { name: "created", wide: true, of: ({ created_at }) => created_at }
  ]
}

/** `muster keys list`. */
export const list = Command.make(
  "list",
  outputFlags,
  Effect.fn(function* (flags) {
    yield* printList(flags, listing, yield* listed, "No keys. `muster keys create --name <name>` makes one.")
  })
).pipe(
  Command.withDescription(
    "List keys: id, scope, state and until when, name; of scope Node, the node and its last heartbeat, to a minute"
  ),
  Command.withExamples([
    { command: "muster keys list", description: "All keys with their state" },
    { command: "muster keys list --json", description: "For programs, with all times" }
  ]),
  Command.provide(keysOver(CommandStore))
)
