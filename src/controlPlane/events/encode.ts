import type { ServerId } from "../../contract/domain/Id.ts"
import { currentStep, type InstallState } from "../../contract/domain/InstallState.ts"
import type { JournalEntry } from "../../contract/domain/Journal.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { Server } from "../../contract/domain/Server.ts"
import type { Expiring, InstallProgress, Topic } from "../../contract/domain/ServerEvent.ts"
import { EncodedEvent } from "./EncodedEvent.ts"
import type { LiveNews } from "./LiveFeed.ts"

/** Bound of an event without `server`, in bytes: each text of a node in an event is at most 1,024 characters. */
export const MAX_EVENT_BYTES = 64 * 1024

/** Returns the payload of a durable `install` event: the present or failed step, or a finished start. */
const installProgress = ({ failure_reason, phase, steps = [] }: InstallState): InstallProgress => {
  const last = steps.at(-1)
  const step = currentStep(steps) ?? (phase === "failed" || last?.name === "start" ? last : undefined)
  return {
    phase,
    ...(step === undefined ? {} : { step: step.name }),
    ...(step?.name === "start" && step.finished_at !== undefined ? { progress: 1 } : {}),
    ...(failure_reason === undefined ? {} : { reason: cleanText(failure_reason) })
  }
}

/** Returns the event of live news, with the cursor of the newest entry before it. */
export const encodeLive = (news: LiveNews, cursor: number, server: Server | null): EncodedEvent => {
  if (news.topic !== "operation") return new EncodedEvent({ ...news, cursor, isLive: true, server })
  const { payload: change, ...same } = news
  return new EncodedEvent({ ...same, cursor, isLive: true, server, payload: change.operation, of: change })
}

/**
 * Returns the public event of an entry, unless the change is internal. Texts of nodes are bounded here.
 * @param server the server for `include=server`; null if unknown or unneeded
 */
export const encode = (entry: JournalEntry, server: Server | null = null): EncodedEvent | undefined => {
  const { at, blueprint_id, change, cursor, labels } = entry
  const encoded = (topic: Topic, server_id: ServerId, payload: unknown) =>
    new EncodedEvent({ cursor, at, blueprint_id, labels, isLive: false, topic, server_id, payload, server })
  switch (change.topic) {
    case "status":
      return encoded("status", change.server_id, change.payload)
    case "crash": {
      const { reason, exit_code, timestamp } = change.payload
      return encoded("crash", change.server_id, {
        reason: cleanText(reason),
        exit_code,
        timestamp: cleanText(timestamp)
      })
    }
    case "deleted":
      return encoded("deleted", change.server_id, null)
    case "server:install":
      return encoded("install", change.server_id, installProgress(change.payload))
    case "server:expiring": {
      const expiring: Expiring = { expires_at: change.payload }
      return encoded("expiring", change.server_id, expiring)
    }
    case "server:problem":
      return encoded("problem", change.server_id, change.payload)
    case "server:schedule":
      return encoded("schedule", change.server_id, change.payload)
    case "server:operation":
      return new EncodedEvent({
        ...{ cursor, at, blueprint_id, labels, isLive: false, topic: "operation", server },
        server_id: change.server_id,
        payload: change.payload.operation,
        of: change.payload
      })
    case "server:backup":
      return new EncodedEvent({
        ...{ cursor, at, blueprint_id, labels, isLive: false, topic: "backup", server },
        server_id: change.server_id,
        payload: change.payload,
        right: "backups"
      })
    default:
      return undefined
  }
}
