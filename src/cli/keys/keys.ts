import { Console, DateTime, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import type { KeyLimits } from "../../contract/domain/Key.ts"
import { commandSettings } from "../../shared/config/command.ts"
import { settings as service } from "../../shared/config/service.ts"
import { command, group } from "../shared/command.ts"
import { only } from "../shared/named.ts"
import { type Listing, outputFlags, printList, wide } from "../shared/output.ts"
import { confirm, isInteractive, yesFlag } from "../shared/terminal.ts"
import { create } from "./create.ts"
import { databaseFlag, KeyAccess, type ListedKey } from "./KeyAccess.ts"
import { ssh } from "./ssh.ts"

interface ShownKey extends ListedKey {
  readonly state: "valid" | "expired" | "revoked"
}

const stateOf = ({ expires_at, revoked_at }: ListedKey, now: number): ShownKey["state"] => {
  if (revoked_at !== null) return "revoked"
  return expires_at !== null && Date.parse(expires_at) <= now ? "expired" : "valid"
}

const shown = Effect.gen(function* () {
  const keys = yield* (yield* KeyAccess).list
  const now = DateTime.toEpochMillis(yield* DateTime.now)
  return keys.map((key): ShownKey => {
    const state = stateOf(key, now)
    // The node of a key that is no longer valid may have another key.
    return { ...key, state, last_seen_at: state === "valid" ? key.last_seen_at : null }
  })
})

const limitsText = ({
  blueprints,
  labels,
  max_memory,
  max_servers,
  paths,
  quota,
  servers
}: KeyLimits): string =>
  [
    ...(servers === undefined ? [] : [`servers ${servers.join()}`]),
    ...(blueprints === undefined ? [] : [`blueprints ${blueprints.join()}`]),
    ...Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`),
    ...(paths === undefined ? [] : [`folders ${paths.join()}`]),
    ...(max_servers === undefined ? [] : [`at most ${max_servers} servers`]),
    ...(max_memory === undefined ? [] : [`at most ${max_memory} MiB`]),
    ...(quota === undefined ? [] : [`quota ${quota}`])
  ].join(", ")

const scopeOf = ({ allow, scope, ...limits }: ShownKey): string => {
  const rights = allow === undefined ? scope : `${scope}: ${allow.join()}`
  const limited = limitsText(limits)
  return limited === "" ? rights : `${rights} (${limited})`
}

const stateText = ({ expires_at, revoked_at, state }: ShownKey): string => {
  if (state === "valid") return expires_at === null ? state : `valid until ${expires_at}`
  return state === "revoked" ? `revoked ${revoked_at}` : `expired ${expires_at}`
}

const listing: Listing<ShownKey> = {
  id: ({ id }) => id,
  columns: {
    id: ({ id }) => id,
    scope: scopeOf,
    state: stateText,
    name: ({ name }) => name,
    node: ({ node_id }) => node_id ?? "",
    seen: ({ last_seen_at }) => last_seen_at ?? "",
    created: wide(({ created_at }) => created_at)
  }
}

export const list = command("list", {
  description:
    "List keys: id, scope, state and until when, name; of scope Node, the node and its last heartbeat, to a minute",
  examples: {
    "muster keys list": "All keys with their state",
    "muster keys list --json": "For programs, with all times"
  },
  input: { ...outputFlags, database: databaseFlag },
  *run(flags) {
    yield* printList(flags, listing, yield* shown, "No keys. `muster keys create --name <name>` makes one.")
  }
}).pipe(Command.provide(({ database }) => KeyAccess.layer(database)))

const revoke = command("revoke", {
  description:
    "Revoke a key, at once and permanently. Asks first on a terminal; elsewhere, the key is revoked without a question.",
  examples: {
    "muster keys revoke key_hxRVN1Qkb4MDGCQY": "By its id",
    "muster keys revoke ci": "By its name, if no other key has it",
    "muster keys list": "Find the id first"
  },
  input: {
    key: Argument.String("key").pipe(
      Argument.withDescription("Id of the key, the beginning of one, or its name, from `muster keys list`")
    ),
    yes: yesFlag,
    database: databaseFlag
  },
  *run({ key, yes }) {
    const keys = yield* KeyAccess
    const all = yield* keys.list
    const isId = all.some((one) => one.id === key)
    const valid = all.filter(({ revoked_at }) => revoked_at === null)
    const { id, name } = yield* only("key", key, isId ? all : valid, ({ name }) => name)
    // No script leaves a leaked key valid because a flag is missing.
    yield* confirm(`Revoke the key ${id} (${name}) permanently?`, yes || !isInteractive())
    yield* keys.revoke(id)
    yield* Console.log(`Key ${id} is revoked.`)
  }
}).pipe(Command.provide(({ database }) => KeyAccess.layer(database)))

const { databaseUrl } = service

/** `muster keys create|list|revoke|ssh` (spec 6.1). */
export const keys = group("keys", {
  short: "Create, list and revoke API keys, and add SSH keys",
  description: "Create, list and revoke API keys, and add SSH keys for SFTP.",
  settings: {
    ...commandSettings,
    databaseUrl
  },
  subcommands: [create, list, revoke, ssh]
})
