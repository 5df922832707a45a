import { Console, Effect, Option, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import type { Change, Reset } from "../client/follow.ts"
import { commandSettings } from "../config/command.ts"
import { withSettings } from "../config/help.ts"
import { Topic } from "../domain/ServerEvent.ts"
import { wrongUsage } from "./shared/CommandError.ts"
import { askStream, CommandClient } from "./shared/musterClient.ts"
import { serverNamed } from "./shared/named.ts"
import { formatOf, jsonOf, outputFlags } from "./shared/output.ts"
import { withCommands } from "./shared/routeCommands.ts"
import { rows } from "./shared/table.ts"
import { note, paint } from "./shared/terminal.ts"
import { A_TIME, momentOf } from "./shared/times.ts"

const isTopic = (text: string): text is Topic => Topic.literals.some((topic) => topic === text)

/** A stream that has sent nothing for this long has sent all stored events: the service sends them without a pause. */
const QUIET = "2 seconds"

const detailOf = ({ payload, topic }: Change): string => {
  switch (topic) {
    case "status":
      return String(payload)
    case "crash":
      // A plain exit has its code as the reason.
      return payload.reason.includes("exit code")
        ? payload.reason
        : `${payload.reason}, exit code ${payload.exit_code}`
    case "deleted":
      return ""
    case "install":
      return withCommands(jsonOf(payload))
    default:
      return jsonOf(payload)
  }
}

const lineOf = (change: Change): string => {
  const color = change.topic === "crash" ? "red" : undefined
  const { at, cursor, server_id, topic } = change
  return rows([[at, String(cursor), server_id, { text: topic.padEnd(7), color }, detailOf(change)]])
}

/** Where a list of events begins: after a cursor, or at a time (RFC 3339 UTC). */
interface Begin {
  readonly from: "now" | number
  readonly at?: string
}

const beginOf = (text: string): Begin | undefined => {
  if (text === "now") return { from: "now" }
  if (/^\d{1,15}$/.test(text)) return { from: Number(text) }
  const at = momentOf(text)
  // The service finds events by cursor only: all stored ones are read.
  return at === undefined ? undefined : { from: 0, at }
}

const isChange = (one: Change | Reset): one is Change => one.topic !== "reset"

/** `muster events`. */
export const events = Command.make(
  "events",
  {
    follow: Flag.Boolean("follow").pipe(
      Flag.withAlias("f"),
      Flag.withDescription("Print new events until Ctrl-C; without it, the stored ones only"),
      Flag.withDefault(false)
    ),
    since: Flag.String("since").pipe(
      Flag.withDescription(
        "Where to begin: 1h, 15m ago, 2026-01-31T12:00:00Z, `now`, or after the cursor of an event; default: 0 (all stored), with -f `now`"
      ),
      Flag.filterMap(
        (text) => Option.fromUndefinedOr(beginOf(text)),
        () => `now, ${A_TIME}, or a cursor such as \`muster events\` prints`
      ),
      Flag.optional
    ),
    topic: Flag.String("topic").pipe(
      Flag.withDescription(
        `Only this topic, repeatable: ${Topic.literals.join(", ")}; default: status, crash, deleted`
      ),
      Flag.between(0, Topic.literals.length)
    ),
    server: Flag.String("server").pipe(
      Flag.withDescription("Only events of this server, repeatable"),
      Flag.between(0, 100)
    ),
    blueprint: Flag.String("blueprint").pipe(
      Flag.withDescription("Only events of servers of this blueprint, repeatable"),
      Flag.between(0, 100)
    ),
    ...outputFlags
  },
  Effect.fn(function* ({ blueprint, follow, server, since, topic, ...flags }) {
    const topics = topic.filter(isTopic)
    const unknown = topic.find((text) => !isTopic(text))
    if (unknown !== undefined) {
      return yield* wrongUsage(`there is no topic ${unknown}: topics are ${Topic.literals.join(", ")}.`)
    }
    const servers = yield* Effect.forEach(server, eventServer)
    const { at, from } = Option.getOrElse(since, (): Begin => ({ from: follow ? "now" : 0 }))
    const changes = askStream((muster) =>
      muster.follow({
        from,
        ...(topics.length > 0 ? { topics } : {}),
        servers,
        blueprints: blueprint
      })
    )
    const format = formatOf(flags)
    const print = (change: Change) => {
      if (format === "id") return Console.log(String(change.cursor))
      return Console.log(format === "table" || format === "wide" ? lineOf(change) : jsonOf(change))
    }
    const shown = follow ? changes : Stream.timeout(changes, QUIET)
    const begins = Date.parse(at ?? "")
    const isEarlier = (change: Change) => Date.parse(change.at) < begins
    let isFirst = at !== undefined
    const printSince = Effect.fnUntraced(function* (change: Change) {
      if (isFirst && !isEarlier(change)) yield* note(`The stored events begin at ${change.at}.`)
      isFirst = false
      if (!isEarlier(change)) yield* print(change)
    })
    yield* Stream.runForEach(shown, (one) =>
      isChange(one)
        ? printSince(one)
        : note(
            paint(
              "The service no longer has the events after this cursor: these are the ones from now on.",
              "yellow",
              process.stderr
            )
          )
    )
  })
).pipe(
  Command.withShortDescription("Print what happens to servers"),
  Command.withDescription(
    withSettings(
      "Print what happens to servers: time, cursor, server, topic and details. The stream resumes by itself, and misses nothing, when the connection breaks.",
      commandSettings
    )
  ),
  Command.withExamples([
    { command: "muster events -f", description: "Everything from now on" },
    { command: "muster events --since 1h", description: "The events of the last hour" },
    {
      command: "muster events --topic crash --topic deleted --since 0 -o jsonl",
      description: "Stored crashes and deletions"
    }
  ]),
  Command.provide(CommandClient)
)

const DELETED = "notFound"

/** The id of a server; that of a deleted server stands for itself. */
const eventServer = (text: string) =>
  serverNamed(text).pipe(
    Effect.map(({ id }): string => id),
    Effect.catchIf(
      ({ status }) => status === DELETED,
      () => Effect.succeed(text)
    )
  )
