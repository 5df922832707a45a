/** `muster keys ssh`: the SSH keys with which clients of SFTP log in as an API key (spec 10.6). */
import { readFileSync } from "node:fs"
import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import type { SshKey } from "../../contract/api/SftpGroup.ts"
import { command, group } from "../shared/command.ts"
import { CommandError, whyNoFile, wrongUsage } from "../shared/failures.ts"
import { ask, CommandClient } from "../shared/musterClient.ts"
import { only } from "../shared/named.ts"
import { type Listing, outputFlags, printList, printOne } from "../shared/output.ts"
import { confirm, isInteractive, yesFlag } from "../shared/terminal.ts"

const keyArgument = Argument.String("key").pipe(
  Argument.withDescription("Id of the API key, the beginning of one, or its name, from `muster keys list`")
)

/** Returns the id of the key that a text names. */
const keyNamed = Effect.fnUntraced(function* (text: string) {
  const all = yield* ask((muster) => muster.keys.list())
  const valid = all.filter(({ revoked_at }) => revoked_at === null)
  const isId = all.some(({ id }) => id === text)
  return yield* only("key", text, isId ? all : valid, ({ name }) => name)
})

const listing: Listing<SshKey> = {
  id: ({ id }) => id,
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
    catch: (cause) =>
      new CommandError({ status: "failed", message: `cannot read the SSH key: ${whyNoFile(cause)}` })
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
    file: Argument.String("file").pipe(
      Argument.withDescription(
        "File with the public key on one line, such as id_ed25519.pub; -: standard input"
      )
    ),
    ...outputFlags
  },
  *run({ file, key, ...flags }) {
    const public_key = yield* publicKeyIn(file)
    const { id } = yield* keyNamed(key)
    yield* printOne(
      flags,
      listing,
      yield* ask((muster) => muster.sshKeys.add({ params: { key: id }, payload: { public_key } }))
    )
  }
})

const list = command("list", {
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
    yield* printList(flags, listing, keys, `No SSH keys. \`muster keys ssh add ${id} FILE\` adds one.`)
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
    ssh: Argument.String("ssh-key").pipe(
      Argument.withDescription("Id of the SSH key, the beginning of one, or its comment")
    ),
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

export const ssh = group("ssh", {
  short: "Add, list and remove SSH keys for SFTP",
  description: "Add, list and remove the SSH public keys of API keys, which log in over SFTP.",
  subcommands: [add, list, remove]
}).pipe(Command.provide(CommandClient))
