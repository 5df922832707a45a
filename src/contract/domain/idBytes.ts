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
