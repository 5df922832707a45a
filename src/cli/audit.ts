import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import type { AuditEntry } from "../contract/domain/AuditEntry.ts"
import { commandSettings } from "../shared/config/command.ts"
import { command, followFlag, given, limitFlag, textFlag } from "./shared/command.ts"
import { ask, askAgain, CommandClient, following } from "./shared/musterClient.ts"
import {
  formatOf,
  jsonOf,
  type Listing,
  outputFlags,
  printList,
  rows,
  shownColumns,
  wide
} from "./shared/output.ts"
import { sinceFlag, untilFlag } from "./shared/times.ts"

const listing: Listing<AuditEntry> = {
  id: ({ id }) => id,
  columns: {
    at: ({ at }) => at,
    actor: ({ actor }) => actor.name,
    action: ({ action }) => action,
    object: ({ object: { count, id, kind, name } }) => {
      if (id === null) return count === undefined ? "" : `${count} ${kind}s`
      return name === undefined ? id : `${id} (${name})`
    },
    result: ({ result }) => ({
      text: String(result.status),
      color: result.status < 400 ? undefined : "red"
    }),
    changes: ({ changes, paths = [], reason }) => reason ?? [...changes, ...paths].join(","),
    scope: wide(({ actor }) => actor.scope ?? ""),
    key: wide(({ actor }) => actor.key_id ?? ""),
    client: wide(({ client }) => client ?? ""),
    request: wide(({ request_id }) => request_id ?? ""),
    repeated: wide(({ repeated }) => (repeated === undefined ? "" : String(repeated)))
  }
}

const PAUSE = "2 seconds"

/** Milliseconds from the arrival of a request to its entry, at most. */
const LONGEST_REQUEST = 120_000

const PAGE = 1000

type Query = Partial<
  Readonly<Record<"since" | "until" | "actor" | "action" | "object" | "result" | "after", string>>
>

const entries = (query: Query, limit: number, call = ask) =>
  call((muster) => muster.audit.list({ query: { ...query, limit: String(limit) } }))

const allEntries = Effect.fnUntraced(function* (query: Query, call: typeof ask) {
  const all: Array<AuditEntry> = []
  while (true) {
    const after = all.at(-1)?.id
    const page = yield* entries(after === undefined ? query : { ...query, after }, PAGE, call)
    all.push(...page)
    if (page.length < PAGE) return all
  }
})

export const audit = command("audit", {
  description:
    "Show the requests that changed something, or were refused: when, which key, which action, on what. Newest first. Needs a key of scope AppAdmin.",
  settings: commandSettings,
  short: "Show the requests that changed something, and their callers",
  examples: {
    "muster audit --action server.delete --since 24h": "Which key deleted servers",
    "muster audit --action file --object lobby": "Which key read or wrote files of a server",
    "muster audit -f --result refused": "Refused requests, as they happen"
  },
  input: {
    since: sinceFlag("Only requests since this time"),
    until: untilFlag("Only requests until this time"),
    actor: textFlag(
      "actor",
      "Only requests of this key, by its id or name; `cli`: commands beside the service, `service`: the service itself"
    ),
    action: textFlag(
      "action",
      "Only this action, or all that begin with its parts: server.delete, server.power, file"
    ),
    object: textFlag("object", "Only requests on the object with this id, or on the server with this name"),
    result: textFlag("result", "`ok`, `refused`, or a status such as 409"),
    limit: limitFlag("At most this many entries, 1 to 1000; default 100", 100).pipe(Flag.withAlias("n")),
    follow: followFlag("Print new entries until Ctrl-C, oldest first"),
    ...outputFlags
  },
  *run({ follow, json, limit, output, ...chosen }) {
    const flags = { json, output }
    const query = given(chosen)
    if (!follow) {
      return yield* printList(flags, listing, yield* entries(query, limit), "No entries.")
    }
    const format = formatOf(flags)
    const columns = shownColumns(listing, format === "wide")
    const print = (entry: AuditEntry) => {
      if (format === "id") return Console.log(entry.id)
      if (format === "json" || format === "jsonl") return Console.log(jsonOf(entry))
      return Console.log(rows([columns.map(([, of]) => of(entry))]))
    }
    const begin = query.since === undefined ? Date.now() : Date.parse(query.since)
    let seen: ReadonlySet<string> = new Set()
    let newest = begin
    const printNew = Effect.fnUntraced(function* (call: typeof ask) {
      // An entry has the time of its request, and is written when the request ends.
      const since = new Date(Math.max(begin, newest - LONGEST_REQUEST)).toISOString()
      const found = yield* allEntries({ ...query, since }, call)
      for (const entry of found.toReversed()) {
        newest = Math.max(newest, Date.parse(entry.at))
        if (!seen.has(entry.id)) yield* print(entry)
      }
      seen = new Set(found.map(({ id }) => id))
    })
    // A mistake in the command line, or in the address, ends the command.
    yield* printNew(ask)
    yield* following(Effect.forever(Effect.delay(printNew(askAgain), PAUSE)))
  }
}).pipe(Command.provide(CommandClient))
