import { readFileSync } from "node:fs"
import { Console, DateTime, Effect } from "effect"
import { Command } from "effect/cli"
import type { SshKey } from "../../contract/api/SftpGroup.ts"
import type { KeyLimits } from "../../contract/domain/Key.ts"
import { commandSettings } from "../../shared/config/command.ts"
import { settings as service } from "../../shared/config/service.ts"
import { command, group, textArgument } from "../shared/command.ts"
import { CommandError, whyNoFile, wrongUsage } from "../shared/failures.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { only } from "../shared/named.ts"
import { type Listing, outputFlags, printList, printOne, wide } from "../shared/output.ts"
import { confirm, isInteractive, yesFlag } from "../shared/terminal.ts"
import { create } from "./create.ts"
import { databaseFlag, KeyAccess, type ListedKey } from "./KeyAccess.ts"

const keyArgument = textArgument(
  "key",
  "Id of the API key, the beginning of one, or its name, from `muster keys list`"
)

/** Returns the id of the key that a text names. */
const keyNamed = Effect.fnUntraced(function* (text: string) {
  const all = yield* ask((muster) => muster.keys.list())
  const valid = all.filter(({ revoked_at }) => revoked_at === null)
  const isId = all.some(({ id }) => id === text)
  return yield* only("key", text, isId ? all : valid, ({ name }) => name)
})

const sshListing: Listing<SshKey> = {
  columns: {
    id: ({ id }) => id,
    type: ({ type }) => type,
    fingerprint: ({ fingerprint }) => fingerprint,
    comment: ({ comment }) => comment,
    created: ({ created_at }) => created_at
  }
}

const LARGEST = 64 * 1024

/** Reads a file `.pub`. @error CommandError it cannot be read, or has a private key (usage) */
const publicKeyIn = Effect.fnUntraced(function* (file: string) {
  const text = yield* Effect.try({
    try: () =>
      readFileSync(file === "-" ? 0 : file, "utf8")
        .slice(0, LARGEST)
        .trim(),
    catch: (cause) => CommandError.failed(`cannot read the SSH key: ${whyNoFile(cause)}`)
  })
  if (!text.includes("PRIVATE KEY")) return text
  return yield* wrongUsage(`${file} has a private key: name the file with the public one, ${file}.pub.`)
})

const add = command("add", {
  description:
    "Add an SSH public key to an API key with browse or files. Its owner then logs in over SFTP with the rights of the API key. Ed25519, ECDSA, and RSA of at least 2,048 bits are accepted; an SSH key is of one API key.",
  short: "Add an SSH public key to an API key",
  examples: {
    "muster keys ssh add plugins ~/.ssh/id_ed25519.pub": "To the key with this name",
    "muster keys ssh add key_hxRVN1Qkb4MDGCQY - < alice.pub": "From standard input"
  },
  input: {
    key: keyArgument,
    file: textArgument(
      "file",
      "File with the public key on one line, such as id_ed25519.pub; -: standard input"
    ),
    ...outputFlags
  },
  *run({ file, key, ...flags }) {
    const public_key = yield* publicKeyIn(file)
    const { id } = yield* keyNamed(key)
    yield* printOne(
      flags,
      sshListing,
      yield* ask((muster) => muster.sshKeys.add({ params: { key: id }, payload: { public_key } }))
    )
  }
})

const listSsh = command("list", {
  description: "List the SSH keys of an API key: id, type, fingerprint, comment.",
  short: "List the SSH keys of an API key",
  examples: {
    "muster keys ssh list plugins": "Of the key with this name",
    "muster keys ssh list key_hxRVN1Qkb4MDGCQY --json": "For programs"
  },
  input: { key: keyArgument, ...outputFlags },
  *run({ key, ...flags }) {
    const { id } = yield* keyNamed(key)
    const keys = yield* ask((muster) => muster.sshKeys.list({ params: { key: id } }))
    yield* printList(flags, sshListing, keys, `No SSH keys. \`muster keys ssh add ${id} FILE\` adds one.`)
  }
})

const remove = command("remove", {
  description:
    "Remove an SSH key from an API key. Connections that have logged in with the SSH key end. Asks first on a terminal.",
  short: "Remove an SSH key from an API key",
  examples: {
    "muster keys ssh remove plugins ssh_5f0c2a": "By the beginning of its id",
    "muster keys ssh list plugins": "Find the id first"
  },
  input: {
    key: keyArgument,
    ssh: textArgument("ssh-key", "Id of the SSH key, the beginning of one, or its comment"),
    yes: yesFlag
  },
  *run({ key, ssh, yes }) {
    const { id, name } = yield* keyNamed(key)
    const all = yield* ask((muster) => muster.sshKeys.list({ params: { key: id } }))
    const found = yield* only("SSH key", ssh, all, ({ comment }) => comment)
    yield* confirm(`Remove the SSH key ${found.fingerprint} from ${name}?`, yes || !isInteractive())
    yield* ask((muster) => muster.sshKeys.remove({ params: { key: id, ssh: found.id } }))
    yield* Console.log(`SSH key ${found.id} is removed.`)
  }
})

const ssh = group("ssh", {
  short: "Add, list and remove SSH keys for SFTP",
  description: "Add, list and remove the SSH public keys of API keys, which log in over SFTP.",
  subcommands: [add, listSsh, remove]
}).pipe(Command.provide(CommandClient))

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
    key: textArgument("key", "Id of the key, the beginning of one, or its name, from `muster keys list`"),
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
