import { Effect, Option } from "effect"
import { type Command, Flag } from "effect/cli"
import { WebhookFormat, WebhookTopic } from "../../domain/Webhook.ts"
import { wrongUsage } from "./CommandError.ts"
import { lineIn } from "./lineFile.ts"

/** The flags of a webhook's fields. */
export const fields = {
  url: Flag.String("url").pipe(Flag.withDescription("Address that receives the events"), Flag.optional),
  "url-file": Flag.String("url-file").pipe(
    Flag.withDescription("File with the address, if it holds a secret; - is standard input"),
    Flag.optional
  ),
  topic: Flag.Literals("topic", WebhookTopic.literals).pipe(
    Flag.withDescription("A topic, repeatable; default: status, crash, deleted"),
    Flag.between(0, WebhookTopic.literals.length)
  ),
  format: Flag.Literals("format", WebhookFormat.literals).pipe(
    Flag.withDescription("The body: json, or the text of a chat"),
    Flag.optional
  ),
  blueprint: Flag.String("blueprint").pipe(
    Flag.withDescription("Only events of servers of this blueprint"),
    Flag.optional
  ),
  label: Flag.String("label").pipe(
    Flag.withDescription("Only events of servers with a label: k=v, k!=v, k or !k"),
    Flag.optional
  ),
  description: Flag.String("description").pipe(Flag.withDescription("Purpose of the webhook"), Flag.optional)
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
  ...(Option.isSome(format) ? { format: format.value } : {}),
  ...(Option.isSome(blueprint) ? { blueprint_id: blueprint.value } : {}),
  ...(Option.isSome(label) ? { label: label.value } : {}),
  ...(Option.isSome(description) ? { description: description.value } : {})
})
