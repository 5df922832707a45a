/** The right that each route needs (spec 6.2). A route that is not in the table needs the scope `AppAdmin`. */
import { Effect } from "effect"
import { Forbidden, InvalidRequest } from "../domain/errors.ts"
import { PowerRight, type Right } from "../domain/KeyScope.ts"
import type { PowerAction } from "../domain/NodeMessages.ts"
import { Authorization } from "./Authorization.ts"
import { CurrentPrincipal, type Principal } from "./Principal.ts"
import type { Scopes } from "./routePolicy.ts"

/** By `group.endpoint`. */
export const neededRights: Readonly<Record<string, Right>> = {
  "nodes.list": "read",
  "nodes.get": "read",
  "nodes.system": "read",
  "nodes.drained": "change",
  "system.info": "read",
  "keys.self": "read",
  "blueprints.list": "read",
  "blueprints.get": "read",
  "blueprints.mixins": "read",
  "blueprints.mixin": "read",
  "blueprints.softwareList": "read",
  "blueprints.software": "read",
  "blueprints.warnings": "read",
  "blueprints.sources": "read",
  "servers.list": "read",
  "servers.get": "read",
  "servers.status": "read",
  "servers.stats": "read",
  "servers.statsOfMany": "read",
  "servers.logs": "read",
  "servers.install": "read",
  "servers.installLogs": "read",
  "servers.crashesOf": "read",
  "servers.crashes": "read",
  "servers.events": "read",
  "servers.console": "console",
  "servers.commands": "commands",
  "servers.power": "power",
  "servers.powerMany": "power",
  "servers.patch": "change",
  "servers.reset": "change",
  "servers.reinstall": "change",
  "servers.upgrade": "change",
  "servers.create": "create",
  "servers.remove": "delete",
  "servers.removeMany": "delete",
  "rollouts.create": "change",
  "rollouts.list": "read",
  "rollouts.get": "read",
  "rollouts.pause": "change",
  "rollouts.resume": "change",
  "rollouts.abort": "change",
  "events.sse": "read",
  "events.websocket": "read",
  "events.ticket": "read"
}

/**
 * Routes with a `:server` that find it themselves: by the beginning of its id, or after its deletion. On all others, a
 * server that the caller may not read is 404 before the input is read.
 */
export const findsServer: ReadonlySet<string> = new Set(["servers.get", "servers.crashesOf"])

/** Any right of a power action opens the routes of `power`, which then need the right of the action. */
const opens = (rights: ReadonlySet<Right>, right: Right): boolean =>
  right === "power" ? PowerRight.literals.some((one) => rights.has(one)) : rights.has(right)

/** Returns the right that a power action needs. */
export const rightOfPower = (action: PowerAction): PowerRight => (action === "unpause" ? "pause" : action)

/**
 * Returns what a key lacks for a route, for a message; undefined: nothing.
 *
 * @param right  the right that the route needs; undefined: keys with limited rights cannot call it
 * @param scopes the scopes that open the route
 */
export const lackingOf = (
  { rights, scope }: Principal,
  right: Right | undefined,
  scopes: Scopes
): string | undefined => {
  const isOpen = scopes.includes(scope)
  if (isOpen && (rights === undefined || (right !== undefined && opens(rights, right)))) return undefined
  return isOpen && right !== undefined ? `: ${right}` : ` the scope ${scopes[0]}`
}

/** A right that a part of a request needs; a power action needs the right of the same name. */
type PartRight = Exclude<Right, "power">

/** 403: the caller lacks the right that a part of its request needs. @param why begins with a colon, if given */
export const requireRight = Effect.fnUntraced(function* (right: PartRight, why = "", hint?: string) {
  const caller = yield* CurrentPrincipal
  const lacking = caller === undefined ? undefined : lackingOf(caller, right, Authorization.scopes)
  if (lacking === undefined) return
  return yield* new Forbidden({
    detail: `the API key lacks${lacking}${why}`,
    ...(hint === undefined ? {} : { hint })
  })
})

/**
 * Checks that the caller may give a body field that does the work of another route.
 *
 * @error Forbidden the key lacks the right of that route
 */
export const checkRightFor = (field: string, right: PartRight) =>
  requireRight(right, `: body field ${field} needs it`, `Leave ${field} out, or use a key with this right.`)

/**
 * Checks the line that running servers get before they are stopped.
 *
 * @error InvalidRequest there is a time but no line
 * @error Forbidden      the key may not send lines to servers
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
