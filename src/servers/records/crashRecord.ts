import { constants } from "node:os"
import type { CrashDetails, CrashRecord } from "../../domain/CrashRecord.ts"
import { serverId } from "../../domain/Id.ts"
import { idBytes } from "../../domain/idBytes.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import type { Crash } from "../../domain/ServerEvent.ts"

/** The exit code of a process that signal n ended is 128 + n. */
const SIGNALED = 128

const signalOf = (exit_code: number): string | undefined =>
  Object.entries(constants.signals).find(([, number]) => number === exit_code - SIGNALED)?.[0]

/** Returns the record of a crash; its id has the form of a server's. */
export const crashRecord = (
  { blueprint_id, definition, id: server_id, name, node_id }: ServerRecord,
  { exit_code, reason, timestamp }: Crash,
  { lines, restart, started_at }: CrashDetails = { lines: [] }
): CrashRecord => {
  const signal = signalOf(exit_code)
  return {
    id: serverId(idBytes(16)),
    server_id,
    ...(typeof name === "string" ? { server_name: name } : {}),
    blueprint_id,
    node_id,
    version: definition.version,
    reason,
    exit_code,
    ...(signal === undefined ? {} : { signal }),
    out_of_memory: reason === "out of memory",
    started_at: started_at ?? null,
    crashed_at: timestamp,
    uptime_seconds:
      started_at === undefined
        ? null
        : Math.max(0, Math.round(Date.parse(timestamp) - Date.parse(started_at)) / 1000),
    restart: restart ?? null,
    lines
  }
}
