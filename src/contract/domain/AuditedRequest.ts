/** The audit entry of a request while the request is served (spec 6.6). */
import { Context, Effect } from "effect"
import type { AuditEntry } from "./AuditEntry.ts"
import { replaceHostile } from "./NodeText.ts"

const MOST_CHANGES = 100
const LONGEST_NAME = 200
/** Characters of a path; one of them alone fits in {@link CHANGES_BYTES}. */
const LONGEST_PATH = 500
const CHANGES_BYTES = 2048

/** Texts that look like a key or the secret of a webhook. */
const secrets = /\b(mst|whsec)_[\w+/=-]*/g

/** Returns a text from a request on one line, bounded and without what looks like a secret. */
const cleaned = (text: string, longest = LONGEST_NAME): string =>
  // PostgreSQL stores no NUL.
  replaceHostile(text.replaceAll(secrets, "$1_...").slice(0, longest), "\ufffd")

const bounded = (all: ReadonlyArray<string>, longest?: number): ReadonlyArray<string> => {
  const names = all.slice(0, MOST_CHANGES).map((one) => cleaned(one, longest))
  let bytes = 0
  const end = names.findIndex((name) => {
    bytes += Buffer.byteLength(JSON.stringify(name)) + 1
    return bytes > CHANGES_BYTES
  })
  return end === -1 ? names : names.slice(0, end)
}

/** An object of a bulk action; `name`: that of a server. */
export interface AuditObject {
  readonly id: string
  readonly name: string | undefined
}

/** An entry for the database, with the objects of a bulk action that are not recorded yet. */
export interface AuditRecord {
  readonly entry: AuditEntry
  readonly text: string
  readonly objects: ReadonlyArray<AuditObject>
}

/** Returns the name of a server by its id; undefined: it has none, or does not exist. */
export const ServerNameOf = Context.Reference<(id: string) => string | undefined>(
  "muster/domain/ServerNameOf",
  { defaultValue: () => () => undefined }
)

export const auditRecord = (entry: AuditEntry, objects: ReadonlyArray<AuditObject> = []): AuditRecord => ({
  entry,
  text: JSON.stringify(entry),
  objects
})

/** The entry of one request. Its first write commits it as a success; the pipeline corrects another status. */
export class AuditedRequest {
  /** Unset if the request has no valid key, and so no entry. */
  actor: AuditEntry["actor"] | undefined
  /** Whether the entry may be one for many such requests, as a refused one; the request changes nothing. */
  isShareable: boolean
  isChange = true
  /** The status of a response that precedes the end of the request; see {@link auditOpened}. */
  begun: number | undefined
  #action: string
  #changes: ReadonlyArray<string> = []
  #paths: ReadonlyArray<string> = []
  #id: string | null
  #name: string | undefined
  readonly #nameOf: (id: string) => string | undefined
  readonly #creates: boolean
  /** Whether writes have created nothing so far. */
  #isWaiting = false
  readonly #objects = new Map<string, AuditObject>()
  readonly #begin: Omit<AuditEntry, "actor" | "action" | "object" | "changes" | "result">
  readonly #kind: string
  readonly #isRead: boolean
  readonly #success: number
  #committed: string | undefined
  readonly #committedObjects = new Set<string>()
  readonly #uncommitted = new Map<string, AuditObject>()
  /** Objects of a bulk action whose node was called; undefined: the node of a request with one object. */
  readonly #called = new Set<string | undefined>()

  /** @param given.id of the object, unless the request has none or creates it */
  constructor(given: {
    readonly begin: Omit<AuditEntry, "actor" | "action" | "object" | "changes" | "result">
    readonly action: string
    readonly kind: string
    readonly id: string | undefined
    readonly success: number
    readonly isShareable?: boolean
    readonly nameOf?: (id: string) => string | undefined
    readonly actor?: AuditEntry["actor"]
  }) {
    this.#begin = given.begin
    this.#action = given.action
    this.#kind = given.kind
    this.#id = given.id === undefined ? null : cleaned(given.id)
    this.#creates = given.id === undefined
    this.#nameOf = given.nameOf ?? (() => undefined)
    this.#name = given.id === undefined ? undefined : this.#nameOf(given.id)
    this.#success = given.success
    this.isShareable = given.isShareable ?? false
    this.#isRead = this.isShareable
    this.actor = given.actor
  }

  /** @param given.id null: the write has created nothing, and does not carry the entry */
  describe(given: {
    readonly action?: string
    readonly id?: string | null
    readonly name?: string | undefined
    readonly changes?: ReadonlyArray<string>
    readonly paths?: ReadonlyArray<string>
  }): void {
    if (given.action !== undefined) this.#action = given.action
    if (given.id !== undefined) {
      this.#id = given.id === null ? null : cleaned(given.id)
      this.#isWaiting = given.id === null
      this.#name = given.name ?? (given.id === null ? undefined : this.#nameOf(given.id))
    }
    if (given.changes !== undefined) this.#changes = bounded(given.changes)
    if (given.paths !== undefined) this.#paths = bounded(given.paths, LONGEST_PATH)
  }

  /** Notes that a node is called, which changes something there unless the route reads only. @param object of a bulk action */
  callsNode(object: string | undefined): void {
    if (this.#isRead) return
    this.#called.add(object)
    if (object !== undefined) this.object(object, true)
  }

  /** Notes that a node has answered: it had nothing to change. */
  unchanged(object: string | undefined): void {
    this.#called.delete(object)
    if (object === undefined) this.isShareable = true
    else if (!this.#committedObjects.has(object)) this.#remove(object)
  }

  get isActing(): boolean {
    return this.#called.size > 0
  }

  /** Whether the request has changed nothing so far, and its entry may be one for many such requests. */
  get changesNothing(): boolean {
    const isBulk = this.#kind === "server" && this.#creates && this.#id === null
    return !this.isActing && !this.isCommitted && (this.isShareable || (isBulk && this.#objects.size === 0))
  }

  /** Adds an object of a bulk action, or removes the object if it was not changed and its node was not called. */
  object(id: string, isChanged: boolean): void {
    if (!isChanged && !this.#called.has(id)) this.#remove(id)
    else if (!this.#objects.has(id)) {
      // A deleted server has no name any more.
      const object = { id, name: this.#nameOf(id) }
      this.#objects.set(id, object)
      if (!this.#committedObjects.has(id)) this.#uncommitted.set(id, object)
    }
  }

  #remove(id: string): void {
    this.#objects.delete(id)
    this.#uncommitted.delete(id)
  }

  get isCommitted(): boolean {
    return this.#committed !== undefined
  }

  /** Returns what a write of the request adds to the database: the entry of a success. */
  carried(): AuditRecord | undefined {
    return this.#isWaiting || this.isShareable ? undefined : this.pending(this.#success)
  }

  /** Returns what the database lacks of the entry, or undefined. @param status that of the response */
  pending(status: number): AuditRecord | undefined {
    const { actor } = this
    if (actor === undefined || !this.isChange) return undefined
    const isMissing = status >= 400 && this.#creates && !this.isCommitted
    const entry: AuditEntry = {
      ...this.#begin,
      actor,
      action: this.#action,
      object: {
        kind: this.#kind,
        id: isMissing ? null : this.#id,
        ...(isMissing || this.#name === undefined ? {} : { name: this.#name }),
        ...(this.#objects.size === 0 ? {} : { count: this.#objects.size })
      },
      // An undecodable body has no fields.
      changes: status === 422 ? [] : this.#changes,
      ...(this.#paths.length === 0 ? {} : { paths: this.#paths }),
      result: { status }
    }
    const objects = [...this.#uncommitted.values()]
    const record = auditRecord(entry, objects)
    return objects.length === 0 && record.text === this.#committed ? undefined : record
  }

  committed({ objects, text }: AuditRecord): void {
    this.#committed = text
    for (const { id } of objects) {
      this.#committedObjects.add(id)
      this.#uncommitted.delete(id)
    }
  }
}

/** Records the outcome of an audited request; undefined: the server has no audit log. */
export const AuditRecorder = Context.Reference<
  ((request: AuditedRequest, status: number) => Effect.Effect<void>) | undefined
>("muster/domain/AuditRecorder", { defaultValue: () => undefined })

/** The entry of the request that the current fiber serves; undefined: none is due. */
export const CurrentAudit = Context.Reference<AuditedRequest | undefined>("muster/domain/CurrentAudit", {
  defaultValue: () => undefined
})

/** The object of a bulk action on which the current fiber acts. */
const CurrentObject = Context.Reference<string | undefined>("muster/domain/CurrentAuditObject", {
  defaultValue: () => undefined
})

/** Acts on one object of a bulk action: its write records the object, too. */
export const auditObject =
  (id: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(CurrentAudit, (audited) =>
      audited === undefined
        ? self
        : self.pipe(
            Effect.provideService(CurrentObject, id),
            Effect.onError(() => Effect.sync(() => audited.object(id, false)))
          )
    )

/** Notes in the entry of the current request that a node is called. */
export const auditNodeCall: Effect.Effect<void> = Effect.flatMap(CurrentAudit, (audited) =>
  audited === undefined
    ? Effect.void
    : Effect.map(CurrentObject, (object) => {
        audited.callsNode(object)
      })
)

/** Notes in the entry of the current request that the node has answered: it had nothing to change. */
export const auditUnchanged: Effect.Effect<void> = Effect.flatMap(CurrentAudit, (audited) =>
  Effect.map(CurrentObject, (object) => audited?.unchanged(object))
)

/** Returns the audited request of a caller whose write has succeeded, with the object that the write has changed. */
export const auditedBy = (caller: Context.Context<never>): AuditedRequest | undefined => {
  const audited = Context.get(caller, CurrentAudit)
  const object = Context.get(caller, CurrentObject)
  if (object !== undefined) audited?.object(object, true)
  return audited
}

export const describeAudit = (given: Parameters<AuditedRequest["describe"]>[0]): Effect.Effect<void> =>
  Effect.map(CurrentAudit, (audited) => audited?.describe(given))

/** Records the current request now, with this status: an opened console, whose request ends with the console. */
export const auditOpened = (status: number): Effect.Effect<void> =>
  Effect.gen(function* () {
    const audited = yield* CurrentAudit
    const record = yield* AuditRecorder
    if (audited === undefined || record === undefined) return
    audited.begun = status
    yield* record(audited, status)
  })

/** Declares that the current request changes nothing: a dry run. */
export const withoutAudit: Effect.Effect<void> = Effect.map(CurrentAudit, (audited) => {
  if (audited !== undefined) audited.isChange = false
})
