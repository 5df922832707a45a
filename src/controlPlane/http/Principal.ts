import { Context, Effect } from "effect"
import { applicationScopes, type Scopes } from "../../contract/api/middleware.ts"
import { Forbidden, InvalidRequest, type NotFound, type Unavailable } from "../../contract/domain/errors.ts"
import { isWithin } from "../../contract/domain/Files.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import {
  type KeyScope,
  PowerRight,
  type Quota,
  type Restriction,
  type Right
} from "../../contract/domain/Key.ts"
import type { PowerAction } from "../../contract/domain/NodeMessages.ts"
import { type OperationChange, rightsOfKind } from "../../contract/domain/Operation.ts"

export interface Principal {
  /** Id of the key, {@link OUTSIDE_KEY} or {@link LOCAL_KEY}. */
  readonly key_id: string
  readonly name: string
  readonly scope: KeyScope
  /** The rights of the key; if unset, it has all that its scope allows. */
  readonly rights?: ReadonlySet<Right>
  /** The servers that the key may read; if unset, it may read every server. */
  readonly restriction?: Restriction
  /** The folders whose files the key reaches; if unset, it reaches every folder. */
  readonly paths?: ReadonlyArray<string>
  /** The quotas of the servers that the key creates or enlarges. */
  readonly quotas?: ReadonlyArray<Quota>
  /** SHA-256 of the ticket that the caller sent in place of the key, in hex. */
  readonly ticket?: string
}

/** Id of the key from `APP_ADMIN_API_KEY`. */
export const OUTSIDE_KEY = "env"

/** Id of the caller over the unix socket of the service, which needs no key. */
export const LOCAL_KEY = "cli"

/** The caller of the current request, unless no key was needed or accepted. */
export const CurrentPrincipal = Context.Reference<Principal | undefined>("muster/api/CurrentPrincipal", {
  defaultValue: () => undefined
})

/** The servers that the current caller may read, unless it may read all. */
export const currentRestriction = Effect.map(CurrentPrincipal, (principal) => principal?.restriction)

/** The key whose schedules and rollouts the caller sees: its own if its servers are limited, else every key's. */
export const currentCreator = Effect.map(CurrentPrincipal, (principal) =>
  principal?.restriction === undefined ? undefined : principal.key_id
)

/** Waits until the caller's key is no longer valid. Streams end then (spec 6.1). */
export const KeyEnds = Context.Reference<(principal: Principal | undefined) => Effect.Effect<void>>(
  "muster/api/KeyEnds",
  { defaultValue: () => () => Effect.never }
)

/** The servers that the key of the current caller may read (spec 6.2); the servers implement it. */
export class ServerAccess extends Context.Service<
  ServerAccess,
  {
    /** Whether the caller may read a server; of a key that is limited to servers, false also for an unknown one. */
    mayRead(id: ServerId): Effect.Effect<boolean, Unavailable>
    /** Returns the 404 of an id or a name with the end of the server, if it was deleted and the caller could read it. */
    explained(text: string, error: NotFound): Effect.Effect<NotFound>
    /** Waits until the caller may no longer read a server; forever, if its key is not limited to servers. */
    ends(id: ServerId): Effect.Effect<void>
    /** Returns the number of servers of a node that the caller may read, if its key is limited to servers. */
    countOn(node_id: NodeId): Effect.Effect<number | undefined>
    /** Returns readable unsaved servers with a failed installation, which no drain removes or migrates. */
    stuckOn(node_id: NodeId): Effect.Effect<ReadonlyArray<ServerId>>
  }
>()("muster/api/ServerAccess") {}

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
