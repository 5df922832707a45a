/** Duration and size of a run of the model. */
import { freshSeed } from "../support/random.ts"

/** Approximate time for start, settling and reading, in seconds. */
const AROUND = 25

/** Duration of the whole run, in seconds. */
export const seconds = Number(process.env.MUSTER_TEST_MODEL_SECONDS ?? 60)
/** Duration of the faults, in seconds. */
export const faultSeconds = Math.max(5, seconds - AROUND)
export const seed = freshSeed()
/** Log level of the replicas: a repeated run is for debugging. */
export const logLevel = process.env.MUSTER_TEST_SEED === undefined ? "info" : "debug"

export const REPLICAS = 3
export const CLIENTS = 8
/** Approximate number of servers that the clients maintain. */
export const POPULATION = 70
/**
 * Seconds for which deleted servers are kept: with some seeds longer than any error of a clock, with others so short that
 * they are purged during the faults.
 */
export const KEEP_SECONDS = seed % 3 === 0 ? 10 : 7_200
/** Finished backups that are read at the end. */
export const READ_BACKUPS = 40
/** Timeout of a client, in milliseconds: longer than the service's own limit of 30 s. */
export const CLIENT_TIMEOUT_MILLIS = 35_000
/** Timeout for the run to become idle after the last fault. */
export const SETTLE_TIMEOUT = "120 seconds"
