/** How long a run of the model lasts, and what it is made of. */
import { freshSeed } from "../support/random.ts"

/** Beginning, coming to rest and looking take about so long, in seconds. */
const AROUND = 25

/** Of the whole run, in seconds. */
export const seconds = Number(process.env.MUSTER_TEST_MODEL_SECONDS ?? 60)
/** Of these things go wrong, in seconds. */
export const faultSeconds = Math.max(5, seconds - AROUND)
export const seed = freshSeed()
/** Of the replicas: a run that repeats another is to be looked into. */
export const logLevel = process.env.MUSTER_TEST_SEED === undefined ? "info" : "debug"

export const REPLICAS = 3
export const CLIENTS = 8
/** Servers that the clients keep in being, more or less. */
export const POPULATION = 70
/** How long a client waits for an answer, in milliseconds: longer than the service's own limit of 30 s. */
export const PATIENCE_MILLIS = 35_000
/** How long everything may take to come to rest once nothing goes wrong any more. */
export const REST = "120 seconds"
