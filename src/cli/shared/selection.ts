/** The servers of a bulk command: `--selector label=team=a`, repeatable. */
import { Effect } from "effect"
import { Flag } from "effect/cli"
import { labelCondition } from "../../contract/domain/Labels.ts"
import type { Selector } from "../../contract/domain/Selector.ts"
import { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import { wrongUsage } from "./CommandError.ts"
import { nodeNamed } from "./named.ts"

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

const isStatus = (text: string): text is ServerStatus => ServerStatus.literals.some((one) => one === text)

const withCondition = Effect.fnUntraced(function* (before: Selection, text: string) {
  const at = text.indexOf("=")
  const [kind, value] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)]
  if (value === "") {
    return yield* wrongUsage(`--selector ${text} is not a condition: it begins with one of ${KINDS}.`)
  }
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
      return yield* wrongUsage(`--selector ${text} is not a condition: it begins with one of ${KINDS}.`)
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

export const queryOf = ({ labels, ...others }: Selection) => ({
  ...others,
  ...(labels === undefined ? {} : { label: labels })
})
