import { Duration, Option, Schema } from "effect"
import { Flag } from "effect/cli"
import { wrongUsage } from "../shared/CommandError.ts"
import { command, severalFlag, textFlag } from "../shared/command.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { outputFlags } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"
import { DurationText, durationOf } from "../shared/times.ts"
import { printServer } from "./listing.ts"
import { envFlag, labelFlag, labelsOf, overridesChangeOf, setFlag } from "./overrides.ts"

const isDuration = Schema.is(DurationText)

const NEVER = "never"

const durationIn = (text: string) =>
  Option.map(Option.liftPredicate(text, isDuration), (valid) => Duration.toSeconds(durationOf(valid)))

export const patch = command("patch", {
  description:
    "Change limits, variables, config values, labels, name or expiry of one server. A server that is up gets changes of its definition at its next start.",
  short: "Change limits, variables, labels, name or expiry of a server",
  examples: {
    "muster servers patch survival-1 --set limits.memory_limit=4096": "More memory",
    "muster servers patch k7f --label team=b --unlabel season --expires never": "Labels and expiry"
  },
  input: {
    server: serverArgument,
    name: textFlag("name", "A new name; empty: no name"),
    label: labelFlag,
    unlabel: severalFlag("unlabel", "The key of a label to remove, repeatable"),
    set: setFlag,
    unset: severalFlag("unset", "An override to remove, repeatable: limits.memory_limit, env.MOTD"),
    env: envFlag,
    expires: Flag.String("expires").pipe(
      Flag.withDescription("Delete the server after this time from now: 30m, 12h, 7d; or `never`"),
      Flag.filter(
        (text) => text === NEVER || Option.isSome(durationIn(text)),
        () => "a time such as 12h, or never"
      ),
      Flag.optional
    ),
    ...outputFlags
  },
  *run(input) {
    const { env, expires, label, name, server, set, unlabel, unset, ...flags } = input
    const overrides = yield* overridesChangeOf({ set, env, unset })
    const labels = {
      ...(yield* labelsOf(label)),
      ...Object.fromEntries(unlabel.map((key) => [key, null]))
    }
    const payload = {
      ...(overrides === undefined ? {} : { overrides }),
      ...(Object.keys(labels).length === 0 ? {} : { labels }),
      ...(Option.isSome(name) ? { name: name.value === "" ? null : name.value } : {}),
      ...(Option.isSome(expires) ? { expires_in: Option.getOrNull(durationIn(expires.value)) } : {})
    }
    if (Object.keys(payload).length === 0) {
      return yield* wrongUsage(
        "Say what to change: --set, --unset, --env, --label, --unlabel, --name or --expires."
      )
    }
    const { id } = yield* serverNamed(server)
    yield* ask((muster) => muster.servers.patch({ params: { server: id }, payload }))
    const { pending = [] } = yield* printServer(flags, id)
    if (pending.length > 0) yield* note(`At its next start, the server gets: ${pending.join(", ")}`)
  }
})
