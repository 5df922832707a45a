import { Console, Effect, Option, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import type { Change, Reset } from "../client/follow.ts"
import { serverIdPattern } from "../contract/domain/Id.ts"
import { Topic } from "../contract/domain/ServerEvent.ts"
import { commandSettings } from "../shared/config/command.ts"
import { command, followFlag, severalFlag } from "./shared/command.ts"
import { ifMissing, withCommands, wrongUsage } from "./shared/failures.ts"
import { ask, askStream, CommandClient, following } from "./shared/musterClient.ts"
import { serverNamed } from "./shared/named.ts"
import { formatOf, jsonOf, outputFlags, rows } from "./shared/output.ts"
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

/**
 * Returns the ids of the servers, also deleted ones, that a text names.
 * @error CommandError no server has or had it (not found)
 */
const eventServers = (text: string) =>
  serverNamed(text).pipe(
    Effect.map(({ id }): ReadonlyArray<string> => [id]),
    ifMissing((error) =>
      Effect.gen(function* () {
        const crashes = yield* ask((muster) =>
          muster.servers.crashes({ query: { server: text, limit: "100" } })
        )
        // Only the scope AppAdmin reads the audit log.
        const entries = yield* Effect.catchIf(
          ask((muster) => muster.audit.list({ query: { object: text, limit: "1000" } })),
          ({ status }) => status === "notAllowed",
          () => Effect.succeed(undefined)
        )
        const deleted = new Set([
          ...crashes.map(({ server_id }): string => server_id),
          ...(entries ?? []).flatMap(({ object: { id, kind } }) =>
            kind === "server" && id !== undefined && id !== null ? [id] : []
          ),
          // A key without the audit log names a deleted server by its id.
          ...(entries === undefined && serverIdPattern.test(text) ? [text] : [])
        ])
        if (deleted.size === 0) return yield* error
        return [...deleted]
      })
    )
  )

export const events = command("events", {
  description:
    "Print what happens to servers: time, cursor, server, topic and details. The stream resumes by itself, and misses nothing, when the connection breaks.",
  settings: commandSettings,
  short: "Print what happens to servers",
  examples: {
    "muster events -f": "Everything from now on",
    "muster events --since 1h": "The events of the last hour",
    "muster events --topic crash --topic deleted --since 0 -o jsonl": "Stored crashes and deletions"
  },
  input: {
    follow: followFlag("Print new events until Ctrl-C; without it, the stored ones only"),
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
    topic: severalFlag(
      "topic",
      `Only this topic, repeatable: ${Topic.literals.join(", ")}; default: status, crash, deleted`,
      Topic.literals.length
    ),
    server: severalFlag(
      "server",
      "Only events of this server, repeatable; a deleted one by its id or last name",
      100
    ),
    blueprint: severalFlag("blueprint", "Only events of servers of this blueprint, repeatable", 100),
    ...outputFlags
  },
  *run({ blueprint, follow, server, since, topic, ...flags }) {
    const topics = topic.filter(isTopic)
    const unknown = topic.find((text) => !isTopic(text))
    if (unknown !== undefined) {
      return yield* wrongUsage(`there is no topic ${unknown}: topics are ${Topic.literals.join(", ")}.`)
    }
    const servers = (yield* Effect.forEach(server, eventServers)).flat()
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
    const isUnfiltered = topics.length === 0 && servers.length === 0 && blueprint.length === 0
    const printSince = Effect.fnUntraced(function* (change: Change) {
      // With a filter, the first one that matches may be later than the first stored one.
      if (isFirst && isUnfiltered && !isEarlier(change))
        yield* note(`The stored events begin at ${change.at}.`)
      isFirst = false
      if (!isEarlier(change)) yield* print(change)
    })
    const printed = Stream.runForEach(shown, (one) =>
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
    yield* follow ? following(printed) : printed
  }
}).pipe(Command.provide(CommandClient))
