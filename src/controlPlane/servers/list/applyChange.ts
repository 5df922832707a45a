/** The changes of the journal, as the read model takes them over. No I/O. */
import type { JournalEntry } from "../../../contract/domain/Journal.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { isUp } from "../../../contract/domain/ServerStatus.ts"
import type { ListedServer } from "./summary.ts"

const fieldsOf = (change: JournalEntry["change"]): Partial<ListedServer> | undefined => {
  switch (change.topic) {
    case "status":
      return {
        status: change.payload,
        ...(isUp(change.payload) ? { transient: false } : {}),
        ...(change.payload === "offline" ? {} : { crashed: false })
      }
    case "server:transient":
      return { transient: change.payload }
    case "server:install":
      return { install: change.payload }
    case "server:start-pending":
      return { start_pending: change.payload }
    case "server:restart":
      return { restart: change.payload }
    case "server:run":
      return { run: change.payload }
    case "server:problem":
      return { problem: change.payload }
    case "server:placed":
      return change.payload
    case "server:crash-recorded":
      return { last_crash: change.payload, crashed: true }
    default:
      return undefined
  }
}

/**
 * Returns the record of a server after a change, if the change sets anything.
 * @param row the present row of a server that was created or changed, unless it is deleted
 */
export const afterChange = (
  before: ListedServer | undefined,
  { at, change }: Pick<JournalEntry, "at" | "change">,
  row: ServerRecord | undefined
): ListedServer | undefined => {
  if (change.topic === "server:created") return row
  if (before === undefined) return undefined
  const updated_at = new Date(at).toISOString()
  if (change.topic === "server:changed")
    return row === undefined ? undefined : { ...withSettings(before, row), updated_at }
  const fields = fieldsOf(change)
  return fields === undefined ? undefined : { ...before, ...fields, updated_at }
}

const withSettings = (
  { expires_at: _, name: __, overrides: ___, ...record }: ListedServer,
  { blueprint_id, definition, expires_at, labels, name, overrides, redefinition }: ServerRecord
): ListedServer => ({
  ...record,
  blueprint_id,
  definition,
  labels,
  ...(name === undefined ? {} : { name }),
  ...(expires_at === undefined ? {} : { expires_at }),
  ...(overrides === undefined ? {} : { overrides }),
  ...(redefinition === undefined ? {} : { redefinition })
})
