import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import {
  type Webhook,
  type WebhookDelivery,
  WebhookFormat,
  WebhookId,
  WebhookTopic
} from "../contract/domain/Webhook.ts"
import { choiceFlag, command, given, group, switchFlag, textArgument, textFlag } from "./shared/command.ts"
import { CommandError, wrongUsage } from "./shared/failures.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import {
  type Listing,
  listCommand,
  objectCommand,
  outputFlags,
  printList,
  printOne,
  wide
} from "./shared/output.ts"
import { confirm, lineIn, note, yesFlag } from "./shared/terminal.ts"

export const fields = {
  url: textFlag("url", "Address that receives the events"),
  "url-file": textFlag("url-file", "File with the address, if it holds a secret; - is standard input"),
  topic: Flag.Literals("topic", WebhookTopic.literals).pipe(
    Flag.withDescription("A topic, repeatable; default: status, crash, deleted"),
    Flag.between(0, WebhookTopic.literals.length)
  ),
  format: choiceFlag("format", WebhookFormat.literals, "The body: json, or the text of a chat"),
  blueprint: textFlag("blueprint", "Only events of servers of this blueprint"),
  label: textFlag("label", "Only events of servers with a label: k=v, k!=v, k or !k"),
  description: textFlag("description", "Purpose of the webhook")
} as const

type Fields = Command.Command.Config.Infer<typeof fields>

/** The address of a webhook, from a flag or a file. */
export const urlOf = Effect.fnUntraced(function* ({ url, "url-file": file }: Fields) {
  if (Option.isSome(url) && Option.isSome(file))
    return yield* wrongUsage("--url and --url-file exclude each other.")
  return Option.isSome(file) ? Option.some(yield* lineIn("URL", file.value)) : url
})

export const payloadOf = ({ blueprint, description, format, label, topic }: Fields) => ({
  ...(topic.length === 0 ? {} : { topics: topic }),
  ...given({ format, blueprint_id: blueprint, label, description })
})

const webhookArgument = textArgument("webhook", "Id of the webhook")
const webhookId = webhookArgument.pipe(Argument.map(WebhookId.make))

const colors = { active: "green", retrying: "yellow", parked: "red" } as const

const listing: Listing<Webhook> = {
  columns: {
    id: ({ id }) => id,
    state: ({ state }) => ({ text: state, color: colors[state] }),
    topics: ({ topics }) => topics.join(","),
    format: ({ format }) => format,
    url: ({ url }) => url,
    blueprint: wide(({ blueprint_id }) => blueprint_id ?? ""),
    label: wide(({ label }) => label ?? ""),
    cursor: wide(({ cursor }) => String(cursor)),
    source: wide(({ source }) => source),
    "failing since": wide(({ failing_since }) => failing_since ?? ""),
    failure: wide(({ failure }) => failure ?? ""),
    description: wide(({ description }) => description ?? "")
  }
}

const attempts: Listing<WebhookDelivery> = {
  id: ({ message_id }) => message_id,
  columns: {
    at: ({ at }) => at,
    topic: ({ topic }) => topic,
    server: ({ server_id }) => server_id ?? "",
    cursor: ({ cursor }) => (cursor === null ? "" : String(cursor)),
    status: ({ status }) => (status === undefined ? "" : String(status)),
    time: ({ duration_ms }) => `${duration_ms} ms`,
    error: ({ error }) => ({ text: error ?? "", color: "red" }),
    message: wide(({ message_id }) => message_id)
  }
}

const create = command("create", {
  description: "Create a webhook: its address receives events in signed requests. The secret is shown once.",
  examples: {
    "muster webhooks create --url https://example.com/hook --topic crash": "Crashes, as JSON",
    "muster webhooks create --url-file discord-url --format discord --topic crash --label team=a":
      "Crashes of a team, in a Discord channel"
  },
  input: { ...fields, ...outputFlags },
  *run(input) {
    const url = yield* urlOf(input)
    if (Option.isNone(url)) return yield* wrongUsage("Name the address with --url or --url-file.")
    const made = yield* ask((muster) =>
      muster.webhooks.create({ payload: { url: url.value, ...payloadOf(input) } })
    )
    const withSecret: Listing<typeof made> = {
      ...listing,
      columns: {
        ...listing.columns,
        secret: ({ secret }) => secret
      }
    }
    yield* printOne(input, withSecret, made)
    yield* note("The secret is shown only now: keep it, to check signatures.")
  }
})

const list = listCommand(
  listing,
  ask((muster) => muster.webhooks.list()),
  "No webhooks. `muster webhooks create` makes one.",
  {
    description: "List webhooks",
    examples: {
      "muster webhooks list": "All webhooks with their state",
      "muster webhooks list -o wide": "Also why deliveries fail"
    }
  }
)

const show = objectCommand(
  "show",
  webhookArgument,
  listing,
  (id) => ask((muster) => muster.webhooks.get({ params: { webhook: WebhookId.make(id) } })),
  {
    description: "Show a webhook",
    examples: {
      "muster webhooks show crash-alerts": "Its fields and state",
      "muster webhooks show crash-alerts --json": "As JSON"
    }
  }
)

const patch = command("patch", {
  description: "Change a webhook. A parked one continues.",
  examples: {
    "muster webhooks patch crash-alerts --topic crash --topic deleted": "Other topics",
    "muster webhooks patch crash-alerts --any-label": "Without a condition on labels"
  },
  input: {
    webhook: webhookId,
    ...fields,
    "any-blueprint": switchFlag("any-blueprint", "Events of servers of all blueprints"),
    "any-label": switchFlag("any-label", "Events of servers with any labels"),
    ...outputFlags
  },
  *run(input) {
    const url = yield* urlOf(input)
    const payload = {
      ...payloadOf(input),
      ...given({ url }),
      ...(input["any-blueprint"] ? { blueprint_id: null } : {}),
      ...(input["any-label"] ? { label: null } : {})
    }
    if (Object.keys(payload).length === 0)
      return yield* wrongUsage("Say what to change, such as with --topic crash.")
    const changed = yield* ask((muster) =>
      muster.webhooks.patch({ params: { webhook: input.webhook }, payload })
    )
    yield* printOne(input, listing, changed)
  }
})

const remove = command("delete", {
  description: "Delete a webhook",
  examples: {
    "muster webhooks delete crash-alerts": "After confirmation",
    "muster webhooks delete crash-alerts --yes": "Without a question"
  },
  input: {
    webhook: webhookId,
    yes: yesFlag
  },
  *run({ webhook, yes }) {
    yield* confirm(`Delete the webhook ${webhook}, with its secret?`, yes)
    yield* ask((muster) => muster.webhooks.remove({ params: { webhook } }))
    yield* Console.log(`Webhook ${webhook} is deleted.`)
  }
})

const test = command("test", {
  description: "Send a test message now. Ends with 1 if the receiver does not accept it.",
  examples: {
    "muster webhooks test crash-alerts": "One attempt",
    "muster webhooks test crash-alerts --json": "With its status and time as JSON"
  },
  input: { webhook: webhookId, ...outputFlags },
  *run({ webhook, ...flags }) {
    const attempt = yield* ask((muster) => muster.webhooks.test({ params: { webhook } }))
    yield* printList(flags, attempts, [attempt], "")
    if (attempt.error !== undefined) {
      return yield* CommandError.failed(`the delivery failed: ${attempt.error}`)
    }
  }
})

const replay = command("replay", {
  description: "Deliver the events after a cursor again. A parked webhook continues.",
  short: "Deliver events again",
  examples: {
    "muster webhooks replay crash-alerts --cursor 0": "All stored events",
    "muster webhooks replay crash-alerts --cursor 4711": "Those after an event"
  },
  input: {
    webhook: webhookId,
    cursor: Flag.Int("cursor").pipe(
      Flag.withDescription("Deliver the events after this cursor again; 0: all stored events"),
      Flag.filter(
        (cursor) => cursor >= 0,
        () => "a cursor such as `muster events` prints"
      )
    ),
    ...outputFlags
  },
  *run({ cursor, webhook, ...flags }) {
    const replayed = yield* ask((muster) =>
      muster.webhooks.replay({ params: { webhook }, payload: { cursor } })
    )
    yield* printOne(flags, listing, replayed)
  }
})

const deliveries = command("deliveries", {
  description: "List the last 100 attempts, newest first",
  examples: {
    "muster webhooks deliveries crash-alerts": "With statuses and errors",
    "muster webhooks deliveries crash-alerts -o jsonl": "One attempt a line"
  },
  input: { webhook: webhookId, ...outputFlags },
  *run({ webhook, ...flags }) {
    const found = yield* ask((muster) => muster.webhooks.deliveries({ params: { webhook } }))
    yield* printList(flags, attempts, found, "No deliveries.")
  }
})

export const webhooks = group("webhooks", {
  short: "Send events to programs, Discord and Slack",
  description: "Create, test and watch webhooks of a running service. Needs a key of scope AppAdmin.",
  subcommands: [list, create, show, patch, remove, test, replay, deliveries]
}).pipe(Command.provide(CommandClient))
