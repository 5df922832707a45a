/** The changes of the journal, as the read model takes them over. No I/O. */
import type { ServerId } from "../../domain/Id.ts"
import type { JournalEntry } from "../../domain/Journal.ts"
import type { Migration } from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import type { ServerTable } from "./ServerTable.ts"
import type { ListedServer } from "./summary.ts"

interface ReadModel {
  readonly table: ServerTable
  readonly migrations: Map<ServerId, Migration>
}

/**
 * Takes over a change of a server.
 *
 * @param row the present row of a server that was created or changed; absent: it is deleted
 */
export const applyChange = (
  { migrations, table }: ReadModel,
  id: ServerId,
  { at, change }: Pick<JournalEntry, "at" | "change">,
  row: ServerRecord | undefined
): void => {
  const updated_at = new Date(at).toISOString()
  switch (change.topic) {
    case "server:created":
      if (row !== undefined) table.add(row)
      break
    case "server:changed": {
      const before = table.get(id)
      if (before !== undefined && row !== undefined) table.add({ ...withSettings(before, row), updated_at })
      break
    }
    case "status":
      table.update(id, {
        status: change.payload,
        updated_at,
        ...(isUp(change.payload) ? { transient: false } : {}),
        ...(change.payload === "offline" ? {} : { crashed: false })
      })
      break
    case "server:transient":
      table.update(id, { transient: change.payload, updated_at })
      break
    case "server:install":
      table.update(id, { install: change.payload, updated_at })
      break
    case "server:start-pending":
      table.update(id, { start_pending: change.payload, updated_at })
      break
    case "server:restart":
      table.update(id, { restart: change.payload, updated_at })
      break
    case "server:run":
      table.update(id, { run: change.payload, updated_at })
      break
    case "server:problem":
      table.update(id, { problem: change.payload, updated_at })
      break
    case "server:placed": {
      const record = table.get(id)
      if (record !== undefined) table.add({ ...record, ...change.payload, updated_at })
      break
    }
    case "server:move":
      if (change.payload === null) migrations.delete(id)
      else migrations.set(id, change.payload)
      break
    case "server:crash-recorded":
      table.update(id, { last_crash: change.payload, crashed: true, updated_at })
      break
    case "deleted":
      table.remove(id)
      migrations.delete(id)
      break
  }
}

/** The record with the settings of its row: what a caller can change. */
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
