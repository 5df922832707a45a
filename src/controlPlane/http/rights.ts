/** The rights of a key (spec 6.2). */
import { Effect } from "effect"
import { applicationScopes, type Scopes } from "../../contract/api/middleware.ts"
import { Forbidden, InvalidRequest } from "../../contract/domain/errors.ts"
import { isWithin } from "../../contract/domain/Files.ts"
import { PowerRight, type Right } from "../../contract/domain/Key.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import { type OperationChange, rightsOfKind } from "../../contract/domain/Operation.ts"
import { CurrentPrincipal, type Principal } from "./Principal.ts"

/** Any right of a power action opens the routes of `power`, which then need the right of the action. */
const opens = (rights: ReadonlySet<Right>, right: Right): boolean =>
  right === "power" ? PowerRight.literals.some((one) => rights.has(one)) : rights.has(right)

export const rightOfPower = (action: PowerAction): PowerRight => (action === "unpause" ? "pause" : action)

/** The rights that a backup needs whose server is stopped or frozen for it (spec 12.10). */
export const rightsToQuiesce = { stop: ["stop", "start"], pause: ["pause"] } as const

/** Returns what a key lacks for a route, if anything; without `right`, its rights must be unlimited. */
export const lackingOf = (
  { rights, scope }: Principal,
  right: Right | undefined,
  scopes: Scopes
): string | undefined => {
  const isOpen = scopes.includes(scope)
  if (isOpen && (rights === undefined || (right !== undefined && opens(rights, right)))) return undefined
  return isOpen && right !== undefined ? `: ${right}` : ` the scope ${scopes[0]}`
}

type PartRight = Exclude<Right, "power">

/** 403: the caller lacks the right that a part of its request needs. @param why begins with a colon, if given */
export const requireRight = Effect.fnUntraced(function* (right: PartRight, why = "", hint?: string) {
  const caller = yield* CurrentPrincipal
  const lacking = caller === undefined ? undefined : lackingOf(caller, right, applicationScopes)
  if (lacking === undefined) return
  return yield* new Forbidden({
    detail: `the API key lacks${lacking}${why}`,
    ...(hint === undefined ? {} : { hint })
  })
})

/** Checks a body field that does the work of another route. @error Forbidden the key lacks its right */
export const checkRightFor = (field: string, right: PartRight) =>
  requireRight(right, `: body field ${field} needs it`, `Leave ${field} out, or use a key with this right.`)

/**
 * Checks that the key of the caller reaches a file (spec 10.1).
 * @error Forbidden the path lies outside the folders of the key
 */
export const requirePath = Effect.fnUntraced(function* (path: string) {
  const folders = (yield* CurrentPrincipal)?.paths
  if (folders === undefined || folders.some((folder) => isWithin(folder, path))) return
  return yield* new Forbidden({
    detail: `the API key does not reach ${path}: it is limited to ${folders.join(", ")}`,
    hint: "Use a path below these folders, or a key without this limit."
  })
})

/**
 * Returns which operations a key sees, of the servers that it reads (spec 11.3); nothing if it sees all.
 */
export const operationsOf = (caller: Principal | undefined) => {
  const { key_id, paths, rights } = caller ?? {}
  if (rights === undefined && paths === undefined) return undefined
  return ({ created_by, operation }: OperationChange): boolean => {
    const needed = rightsOfKind(operation.kind)?.see
    const hasRight = rights === undefined || (needed !== undefined && rights.has(needed))
    return hasRight && (paths === undefined || created_by === key_id)
  }
}

/**
 * Checks the line that servers get before they are stopped.
 * @error InvalidRequest there is a time but no line
 * @error Forbidden the key may not send lines to servers
 */
export const checkNotice = Effect.fnUntraced(function* ({
  notify,
  notify_seconds
}: {
  readonly notify?: string
  readonly notify_seconds?: number
}) {
  if (notify !== undefined) return yield* checkRightFor("notify", "commands")
  if (notify_seconds === undefined) return
  return yield* new InvalidRequest({
    detail: "body field notify_seconds: it needs notify",
    hint: "Send the line as notify, or leave the field out."
  })
})
