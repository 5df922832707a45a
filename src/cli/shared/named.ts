/** Servers and nodes that a command means: by an id, the beginning of one, or a name; or by `--selector`. */
import { Effect } from "effect"
import { Argument, Flag } from "effect/cli"
import type { RequestOf, ServerEndpoints } from "../../client/calls.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { labelCondition } from "../../contract/domain/Labels.ts"
import type { Node } from "../../contract/domain/Node.ts"
import { labelConditions, type Selector } from "../../contract/domain/Selector.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import { textArgument } from "./command.ts"
import { CommandError, ifMissing, wrongUsage } from "./failures.ts"
import { ask } from "./musterClient.ts"

export const serverArgument = textArgument("server", "Id of the server, the beginning of one, or its name")

export const serverArguments = serverArgument.pipe(Argument.variadic())

export const optionalServerArgument = serverArgument.pipe(Argument.optional)

export const nodeArgument = textArgument("node", "Id of the node, the beginning of one, or its name")

const LISTED = 10

const isWhole = <A extends object>(item: A | string): item is A => typeof item !== "string"

/** The commands that list objects. */
const lists = {
  server: "servers list",
  "deleted server": "servers list --deleted",
  node: "nodes list",
  key: "keys list",
  "SSH key": "keys ssh list",
  schedule: "schedules list",
  backup: "backups list"
} as const

/**
 * Returns the only object with this id, else name, else beginning of the id.
 * @error CommandError none (not found), or several (refused)
 */
export const only = <A extends { readonly id: string }>(
  what: keyof typeof lists,
  text: string,
  all: ReadonlyArray<A>,
  nameOf: (item: A) => string
): Effect.Effect<A, CommandError> => {
  const byId = all.filter(({ id }) => id === text)
  const byName = byId.length > 0 ? byId : all.filter((item) => nameOf(item) === text)
  const found = byName.length > 0 ? byName : all.filter(({ id }) => id.startsWith(text))
  const [first, ...others] = found
  if (first === undefined) {
    return Effect.fail(
      CommandError.notFound(`${what} not found: ${text}. \`muster ${lists[what]}\` shows all ${what}s.`)
    )
  }
  if (others.length === 0) return Effect.succeed(first)
  const shown = found
    .slice(0, LISTED)
    .map((item) => (nameOf(item) === "" ? item.id : `${item.id} (${nameOf(item)})`))
  const more = found.length > LISTED ? `, and ${found.length - LISTED} more` : ""
  return Effect.fail(
    CommandError.refused(`several ${what}s match ${text}: ${shown.join(", ")}${more}. Name one by its id.`)
  )
}

export const serversOf = (query: NonNullable<RequestOf<ServerEndpoints["list"]>["query"]>, call = ask) =>
  Effect.map(
    call((muster) => muster.servers.list({ query })),
    (found: ReadonlyArray<Server | string>) => found.filter(isWhole)
  )

/** Servers of the largest page of a list. */
export const MOST = "1000"

/** Returns the server of an argument, with `status` and `name`; `include`: further fields. */
export const serverNamed = Effect.fnUntraced(function* (text: string, include: ReadonlyArray<string> = []) {
  const fields = [...new Set(["status", "name", ...include])].join(",")
  const found = yield* serversOf({ q: text, include: fields, limit: MOST })
  return yield* only("server", text, found, ({ name }) => name ?? "").pipe(
    ifMissing(
      // The service says when and why a server was deleted.
      () =>
        ask((muster) =>
          muster.servers.get({ params: { server: ServerId.make(text) }, query: { include: fields } })
        )
    )
  )
})

/** Returns how messages name the servers of a query: `k7f3m9q2x8ab (lobby)`; those without a name by their ids. */
export const labelledServers = Effect.fnUntraced(function* (query: {
  readonly node_id?: Node["id"]
  readonly blueprint_id?: string
}) {
  const found = yield* serversOf({ ...query, include: "name" })
  const names = new Map(found.map(({ id, name }): [string, string] => [id, name ?? ""]))
  return (id: string): string => (names.get(id) ? `${id} (${names.get(id)})` : id)
})

export const allNodes = ask((muster) => muster.nodes.list({ query: {} })).pipe(
  Effect.map((nodes: ReadonlyArray<Node | string>) => nodes.filter(isWhole))
)

export const nodeNamed = Effect.fnUntraced(function* (text: string) {
  return yield* only("node", text, yield* allNodes, ({ name }) => name)
})

/** The flag that selects servers. All conditions must hold. */
export const selectorFlag = Flag.String("selector").pipe(
  Flag.withAlias("l"),
  Flag.withMetavar("condition"),
  Flag.withDescription(
    "Servers that meet a condition; repeatable, all must hold: label=team=a (or team!=a, team, !team), blueprint=ID, node=NODE, status=STATUS"
  ),
  Flag.between(0, 64)
)

/** The conditions of {@link selectorFlag}; nodes by id. */
export interface Selection {
  readonly blueprint_id?: string
  readonly node_id?: Selector["node_id"] & string
  readonly status?: ServerStatus
  readonly labels?: ReadonlyArray<string>
}

const KINDS = "label=, blueprint=, node= and status="

/** Beginnings that callers try for single servers. */
const ONE_SERVER: ReadonlySet<string> = new Set(["id", "ids", "name", "server", "servers", "server_id"])

const notACondition = (text: string, kind: string) =>
  wrongUsage(
    `--selector ${text} is not a condition: it begins with one of ${KINDS}.${ONE_SERVER.has(kind) ? " Name single servers without --selector." : ""}`
  )

const isStatus = (text: string): text is ServerStatus => ServerStatus.literals.some((one) => one === text)

const withCondition = Effect.fnUntraced(function* (before: Selection, text: string) {
  const at = text.indexOf("=")
  const [kind, value] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)]
  if (value === "") return yield* notACondition(text, kind)
  switch (kind) {
    case "label":
      if (labelCondition(value) === undefined) {
        return yield* wrongUsage(`--selector ${text}: a label is k=v, k!=v, k or !k.`)
      }
      return { ...before, labels: [...(before.labels ?? []), value] }
    case "blueprint":
      return { ...before, blueprint_id: value }
    case "node":
      return { ...before, node_id: (yield* nodeNamed(value)).id }
    case "status":
      if (!isStatus(value)) {
        return yield* wrongUsage(`--selector ${text}: a status is ${ServerStatus.literals.join(", ")}.`)
      }
      return { ...before, status: value }
    default:
      return yield* notACondition(text, kind)
  }
})

export const selectionOf = Effect.fnUntraced(function* (conditions: ReadonlyArray<string>) {
  const kinds = conditions.map((text) => text.split("=")[0] ?? "").filter((kind) => kind !== "label")
  const twice = kinds.find((kind, at) => kinds.indexOf(kind) < at)
  if (twice !== undefined) return yield* wrongUsage(`--selector ${twice}= may be given once.`)
  let selection: Selection = {}
  for (const text of conditions) selection = yield* withCondition(selection, text)
  return selection
})

/** Returns the conditions of a selector as the command line writes them, without its ids. */
export const conditionsOf = (selector: Selector): ReadonlyArray<string> => {
  const { blueprint_id: blueprint, node_id: node, status } = selector
  return [
    ...Object.entries({ blueprint, node, status }).flatMap(([kind, value]) =>
      value === undefined ? [] : [`${kind}=${value}`]
    ),
    ...labelConditions(selector).map((label) => `label=${label}`)
  ]
}

export const queryOf = ({ labels, ...others }: Selection) => ({
  ...others,
  ...(labels === undefined ? {} : { label: labels })
})
