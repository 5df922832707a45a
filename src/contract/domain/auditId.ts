import { idBytes } from "./idBytes.ts"

const COUNTS = 65_536

/** Requests of this process, so that ids of one millisecond keep their order. */
let counted = 0

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0")

/** Returns the smallest id of an entry at a time (ms since the epoch), without its last 20 digits. */
export const auditIdAt = (millis: number): string =>
  hex(Math.min(Math.max(0, Math.ceil(millis)), 2 ** 48 - 1), 12)

/** Returns a new id of an audit entry, as `auditIdPattern` describes it. */
export const auditId = (millis: number): string => {
  counted = (counted + 1) % COUNTS
  return auditIdAt(millis) + hex(counted, 4) + Buffer.from(idBytes(8)).toString("hex")
}
