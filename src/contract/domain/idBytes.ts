import { randomBytes } from "node:crypto"

/** Bytes that are read from the system at a time: a read costs the same for 16 bytes. */
const POOL_BYTES = 4096

let pool = new Uint8Array()

/** Returns random bytes for an id, at most {@link POOL_BYTES}. A secret needs bytes that the process does not keep. */
export const idBytes = (count: number): Uint8Array => {
  if (pool.length < count) pool = new Uint8Array(randomBytes(POOL_BYTES))
  const taken = pool.slice(0, count)
  pool = pool.subarray(count)
  return taken
}

const COUNTS = 65_536

/** Requests of this process, so that ids of one millisecond keep their order. */
let counted = 0

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0")

/** Returns the smallest id of an entry at a time (ms since the epoch), without its last 20 digits. */
export const auditIdAt = (millis: number): string =>
  hex(Math.min(Math.max(0, Math.ceil(millis)), 2 ** 48 - 1), 12)

export const auditId = (millis: number): string => {
  counted = (counted + 1) % COUNTS
  return auditIdAt(millis) + hex(counted, 4) + Buffer.from(idBytes(8)).toString("hex")
}
