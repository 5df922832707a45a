/** Which servers a node starts by itself, and which after a crash. */
import { Schema } from "effect"
import { NodeCount, NodeText } from "./NodeText.ts"
import { inUnit } from "./units.ts"

/**
 * A node starts `unless_stopped` servers that were up when it ended, `always` also after a creation, a migration and an
 * upgrade, and `manual` never.
 */
export const RunRule = Schema.Literals(["unless_stopped", "always", "manual"]).annotate({
  identifier: "RunRule",
  description:
    "`unless_stopped`: a server that was up when its daemon, node or machine ended is started again. `always`: also after its creation, a migration and an upgrade. `manual`: never by itself. Only of servers that are saved; a stop by a caller holds until the next start."
})
export type RunRule = typeof RunRule.Type

/** The place of a server among those that its node starts: a higher number comes first. */
export const RunPriority = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100 })).annotate({
  description: "Servers with a higher number are started first after a restart of their node; default 50."
})

const RestartDelay = Schema.Finite.check(
  Schema.isBetween({ minimum: 0, maximum: 86_400 }, inUnit("a number of seconds"))
)

/** The rule of restarts after crashes, as blueprints and overrides give it. */
export const restartFields = {
  on_crash: Schema.Boolean,
  delay: RestartDelay,
  max_delay: RestartDelay,
  max_per_hour: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 3600 })),
  reset_after: RestartDelay
} as const

interface Ruled {
  readonly save: boolean
  readonly run?: RunRule
  readonly priority?: number
}

/** Returns the rule of a server. One that is not saved ends with its run, so it is never started again. */
export const runRuleOf = ({ run = "unless_stopped", save }: Ruled): RunRule => (save ? run : "manual")

const DEFAULT_PRIORITY = 50

/** A server that waits for its start. */
export interface Queued {
  readonly id: string
  readonly definition: Ruled
  readonly created_at?: string
}

export const byTurn = (one: Queued, other: Queued): number => {
  const key = ({ created_at = "", id }: Queued) => `${created_at} ${id}`
  const before =
    (other.definition.priority ?? DEFAULT_PRIORITY) - (one.definition.priority ?? DEFAULT_PRIORITY)
  return before !== 0 ? before : key(one) < key(other) ? -1 : 1
}

/** What a node reports of a server that is not up. */
export const RunReport = Schema.Struct({
  /** The caller whose stop holds until the next start. */
  stopped_by: Schema.optionalKey(NodeText),
  /** Whether the node starts it once its turn has come. */
  waiting: Schema.optionalKey(Schema.Boolean)
})
export type RunReport = typeof RunReport.Type

/** What the record of a server has: as reported, and whether its node has still to be told of the stop. */
export const RunState = Schema.Struct({
  ...RunReport.fields,
  /** The stop was accepted while the node was away; it is sent once the node has returned. */
  undelivered: Schema.optionalKey(Schema.Literal(true))
})
export type RunState = typeof RunState.Type

/** Whether an offline server starts after a creation, a migration or an upgrade, unless stopped or given up. */
export const startsAlways = ({
  definition,
  restart,
  run
}: {
  readonly definition: Ruled
  readonly restart?: object | null
  readonly run?: RunState | null
}): boolean =>
  runRuleOf(definition) === "always" && run?.stopped_by === undefined && (restart ?? null) === null

export const RunView = Schema.Struct({
  run: RunRule,
  stopped_by: Schema.optionalKey(
    Schema.String.annotate({ description: "The caller whose stop holds until the next start." })
  ),
  waiting: Schema.optionalKey(
    Schema.Int.annotate({
      description: "The place of the server among those that its node is going to start, from 1."
    })
  )
}).annotate({ identifier: "Run" })

/** A restart that is pending, `next_at` in RFC 3339; or the reason why there is none any more. */
export const RestartState = Schema.Union([
  Schema.Struct({ attempt: NodeCount, next_at: NodeText }).annotate({ identifier: "PendingRestart" }),
  Schema.Struct({ given_up: Schema.Literal(true), reason: NodeText }).annotate({ identifier: "NoRestart" })
]).annotate({ identifier: "RestartState" })
export type RestartState = typeof RestartState.Type

export const isRestartPending = (
  restart: RestartState | null | undefined
): restart is Extract<RestartState, { readonly next_at: string }> =>
  restart !== null && restart !== undefined && "next_at" in restart
