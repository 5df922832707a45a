import { Context, Effect } from "effect"
import type { NotFound, Unavailable } from "../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import type { KeyScope, Quota, Restriction, Right } from "../../contract/domain/Key.ts"

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
