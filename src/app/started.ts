import { channel } from "node:diagnostics_channel"
import { Effect } from "effect"
import { STARTED } from "./startedChannel.ts"

/** Reports that the service or the daemon has started. */
export const reportStarted = Effect.sync(() => channel(STARTED).publish(undefined))
