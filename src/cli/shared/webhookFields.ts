import { Effect, Option } from "effect"
import { type Command, Flag } from "effect/cli"
import { WebhookFormat, WebhookTopic } from "../../domain/Webhook.ts"
import { wrongUsage } from "./CommandError.ts"
import { given, textFlag } from "./documented.ts"
import { lineIn } from "./lineFile.ts"

/** The flags of a webhook's fields. */
export const fields = {
  url: textFlag("url", "Address that receives the events"),
  "url-file": textFlag("url-file", "File with the address, if it holds a secret; - is standard input"),
  topic: Flag.Literals("topic", WebhookTopic.literals).pipe(
    Flag.withDescription("A topic, repeatable; default: status, crash, deleted"),
    Flag.between(0, WebhookTopic.literals.length)
  ),
  format: Flag.Literals("format", WebhookFormat.literals).pipe(
    Flag.withDescription("The body: json, or the text of a chat"),
    Flag.optional
  ),
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

/** The fields of a webhook that the flags name, without its address. */
export const payloadOf = ({ blueprint, description, format, label, topic }: Fields) => ({
  ...(topic.length === 0 ? {} : { topics: topic }),
  ...given({ format, blueprint_id: blueprint, label, description })
})
