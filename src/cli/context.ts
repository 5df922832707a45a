import { Console, Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ADMIN_KEY_FILE } from "../contract/domain/Key.ts"
import { address } from "../shared/config/kinds.ts"
import { command, textArgument } from "./shared/command.ts"
import { CommandError } from "./shared/failures.ts"
import { type Listing, outputFlags, printList } from "./shared/output.ts"
import { changeContexts, readContexts } from "./shared/target.ts"
import { enterUserFolder, lineIn } from "./shared/terminal.ts"

const nameArgument = textArgument("name", "Name of the context").pipe(
  Argument.filter(
    (name) => /^[A-Za-z0-9][\w.-]{0,62}$/.test(name),
    () => "a name such as production ([A-Za-z0-9_.-], at most 63 characters)"
  )
)

const add = command("add", {
  description: "Add or replace a context. The first one is chosen at once.",
  examples: {
    "muster context add home --url http://127.0.0.1:5620 --key-file data/admin.key":
      "The service on this machine",
    "muster context add production --url https://muster.example.com --key-file - < key":
      "A key from standard input"
  },
  input: {
    name: nameArgument,
    url: Flag.String("url").pipe(
      Flag.withDescription("Address of the service"),
      Flag.filter(
        (url) => address.read(url) !== undefined,
        () => address.may
      )
    ),
    keyFile: Flag.String("key-file").pipe(
      Flag.withDescription(
        `File with the key, such as ${ADMIN_KEY_FILE} of the data folder; - is standard input. The key is copied.`
      )
    )
  },
  *run({ keyFile, name, url }) {
    yield* enterUserFolder
    const key = yield* lineIn("key", keyFile)
    const current = yield* changeContexts(({ contexts, current = name }) =>
      Effect.succeed([{ current, contexts: { ...contexts, [name]: { url, key } } }, current])
    )
    yield* Console.log(
      current === name
        ? `Commands use the context ${name}.`
        : `The context ${name} is added; \`muster context use ${name}\` chooses it.`
    )
  }
})

interface Row {
  readonly name: string
  readonly url: string
  readonly current: boolean
}

const listing: Listing<Row> = {
  columns: {
    name: ({ name }) => name,
    url: ({ url }) => url,
    current: ({ current }) => (current ? "yes" : "")
  }
}

const list = command("list", {
  description: "List contexts, without their keys.",
  short: "List contexts",
  examples: {
    "muster context list": "All contexts",
    "muster context list -o id": "Their names"
  },
  input: outputFlags,
  *run(flags) {
    const { contexts, current } = yield* readContexts
    const rows = Object.entries(contexts).map(([name, { url }]) => ({ name, url, current: name === current }))
    yield* printList(flags, listing, rows, "No contexts. `muster context add` makes one.")
  }
})

const notFound = (name: string) =>
  CommandError.notFound(`context not found: ${name}. \`muster context list\` shows all contexts.`)

const use = command("use", {
  description: "Choose the context that commands use. MUSTER_URL and MUSTER_API_KEY take precedence.",
  examples: {
    "muster context use production": "From now on",
    "MUSTER_URL=http://127.0.0.1:5620 muster nodes list": "Another service, for one command"
  },
  input: { name: nameArgument },
  *run({ name }) {
    yield* changeContexts(({ contexts }) =>
      Object.hasOwn(contexts, name)
        ? Effect.succeed([{ contexts, current: name }, undefined])
        : Effect.fail(notFound(name))
    )
    yield* Console.log(`Commands use the context ${name}.`)
  }
})

const remove = command("remove", {
  description: "Remove a context and its key from this machine. The key stays valid.",
  short: "Remove a context and its key",
  examples: {
    "muster context remove production": "The context and its key",
    "muster keys revoke key_2f9": "Make the key itself invalid, beside the service"
  },
  input: { name: nameArgument },
  *run({ name }) {
    const isCurrent = yield* changeContexts(({ contexts, current }) => {
      if (!Object.hasOwn(contexts, name)) return Effect.fail(notFound(name))
      const { [name]: _, ...others } = contexts
      const isCurrent = current === name
      const kept = isCurrent || current === undefined ? {} : { current }
      return Effect.succeed([{ contexts: others, ...kept }, isCurrent])
    })
    yield* Console.log(
      isCurrent ? `The context ${name} is removed; none is chosen now.` : `The context ${name} is removed.`
    )
  }
})

/** `muster context`: services and keys by name, in a file that only its owner can read. */
export const context = Command.make("context").pipe(
  Command.withShortDescription("Remember services and their keys by name"),
  Command.withDescription(
    "Remember services and their keys by name, in contexts.json of $XDG_CONFIG_HOME/muster (~/.config/muster), with mode 0600."
  ),
  Command.withSubcommands([add, list, use, remove])
)
