import { Effect, Option } from "effect"
import { Flag } from "effect/cli"
import type { Server } from "../../contract/domain/Server.ts"
import { command } from "../shared/command.ts"
import { serversOf } from "../shared/named.ts"
import { outputFlags, printList } from "../shared/output.ts"
import { queryOf, selectionOf, selectorFlag } from "../shared/selection.ts"
import { servers, shownFields } from "./listing.ts"

const PAGE = 1000

type Query = ReturnType<typeof queryOf> & { readonly q?: string }

const pages = Effect.fnUntraced(function* (query: Query, include: string, most: number) {
  const all: Array<Server> = []
  while (all.length < most) {
    const limit = Math.min(PAGE, most - all.length)
    const last = all.at(-1)
    const page = yield* serversOf({
      ...query,
      include,
      limit: String(limit),
      ...(last === undefined ? {} : { after: last.id })
    })
    all.push(...page)
    if (page.length < limit) break
  }
  return all
})

export const list = command("list", {
  description: "List servers in the order of their creation, all pages of them.",
  short: "List servers",
  examples: {
    "muster servers list -o wide": "All servers, with limits and conditions",
    "muster servers list --selector label=team=a --selector status=running -o id":
      "The ids of the running servers of a team"
  },
  input: {
    ...outputFlags,
    selector: selectorFlag,
    search: Flag.String("search").pipe(
      Flag.withAlias("q"),
      Flag.withDescription("Servers whose id begins with this, or whose name contains it"),
      Flag.optional
    ),
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("At most this many servers; default: all"),
      Flag.filter(
        (limit) => limit > 0,
        () => "a whole number of at least 1"
      ),
      Flag.optional
    )
  },
  *run({ limit, search, selector, ...flags }) {
    const query = queryOf(yield* selectionOf(selector))
    const found = yield* pages(
      Option.isSome(search) ? { ...query, q: search.value } : query,
      shownFields.join(","),
      Option.getOrElse(limit, () => Number.POSITIVE_INFINITY)
    )
    yield* printList(flags, servers, found, "No servers.")
  }
})
