/** Entries of the audit log for what a connection does (spec 10.1): one for each change, for reads one a minute and file. */
import { Clock, Effect } from "effect"
import { AuditedRequest } from "../../contract/domain/AuditedRequest.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { auditId } from "../../contract/domain/idBytes.ts"
import type { FileError } from "../../contract/nodeApi/NodeFiles.ts"
import type { EntryChange } from "../../contract/nodeApi/sessionFrames.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import type { Principal } from "../http/Principal.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"

/** Between two audit entries of reads of a file, in ms. */
const READ_ENTRY_MILLIS = 60_000
const MOST_READ_PATHS = 1000

export interface Client {
  readonly principal: Principal
  /** The address; null if it is unknown. */
  readonly address: string | null
}

type ActionOf = { readonly action: string; readonly paths: ReadonlyArray<string> }

export const actionOf = (change: EntryChange): ActionOf => {
  switch (change.kind) {
    case "set":
      return {
        action: change.attributes.size === undefined ? "file.mode" : "file.write",
        paths: [change.path]
      }
    case "folder":
      return { action: "file.folder", paths: [change.path] }
    case "remove":
    case "remove-folder":
      return { action: "file.delete", paths: [change.path] }
    case "rename":
      return { action: "file.move", paths: [change.from, change.path] }
  }
}

const statusOf = (error: FileError): number => (error._tag === "NodeUnreachable" ? 503 : error.status)

/** Returns functions that record what a connection does in the audit log. */
export const makeAuditing = Effect.fnUntraced(function* ({ address, principal }: Client) {
  const log = yield* AuditLog
  const index = yield* ServerIndex
  const { key_id, name, scope } = principal
  const read = new Map<string, number>()

  const record = Effect.fnUntraced(function* (
    id: ServerId,
    { action, paths }: ActionOf,
    status: number,
    isShareable: boolean
  ) {
    const now = yield* Clock.currentTimeMillis
    const request = new AuditedRequest({
      begin: { id: auditId(now), at: new Date(now).toISOString(), client: address, request_id: null },
      action,
      kind: "server",
      id,
      success: 200,
      isShareable,
      nameOf: (server) => index.nameOf(ServerId.make(server)),
      actor: { key_id, name, scope }
    })
    request.describe({ paths })
    yield* log.record(request, status)
  })

  return {
    /** Adds the entry of a change, with its outcome. */
    changing:
      (id: ServerId, action: ActionOf) =>
      <A>(effect: Effect.Effect<A, FileError>): Effect.Effect<A, FileError> =>
        effect.pipe(
          Effect.tap(() => record(id, action, 200, false)),
          Effect.tapError((error) => record(id, action, statusOf(error), true))
        ),
    /** Adds at most one entry a minute for each file. */
    reading: Effect.fnUntraced(function* (id: ServerId, path: string) {
      const now = yield* elapsedMillis
      const key = `${id}${path}`
      if (now - (read.get(key) ?? Number.NEGATIVE_INFINITY) < READ_ENTRY_MILLIS) return
      if (read.size >= MOST_READ_PATHS) read.clear()
      read.set(key, now)
      yield* record(id, { action: "file.read", paths: [path] }, 200, true)
    })
  }
})
