import { Schema } from "effect"
import { Backup } from "./Backup.ts"
import { InstallPhase, InstallStepName } from "./InstallState.ts"
import { ExitCode, NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"
import { Operation } from "./Operation.ts"
import { ShownProblem } from "./Problem.ts"
import { ScheduleNews } from "./Schedule.ts"
import { Server, ServerStats } from "./Server.ts"
import { ServerStatus } from "./ServerStatus.ts"

/** The topics of every stream (spec 5.1). */
const DefaultTopic = Schema.Literals(["status", "crash", "deleted"])
/** The topics that a stream has only if `topics` names them (spec 5.1). */
const OptInTopic = Schema.Literals([
  "install",
  "stats",
  "expiring",
  "problem",
  "operation",
  "schedule",
  "backup"
])

export const Topic = Schema.Literals([...DefaultTopic.literals, ...OptInTopic.literals])
export type Topic = typeof Topic.Type

export const isOptIn = (topic: Topic): boolean => OptInTopic.literals.some((optIn) => optIn === topic)

/** Payload of a `crash` event; `timestamp` is RFC 3339 in UTC with milliseconds. */
export const Crash = Schema.Struct({
  reason: NodeText,
  exit_code: ExitCode,
  timestamp: NodeText
}).annotate({ identifier: "Crash" })
export type Crash = typeof Crash.Type

/** Payload of an `install` event: the step in progress or failed, `progress` from 0 to 1, and why it failed. */
export const InstallProgress = Schema.Struct({
  phase: InstallPhase,
  step: Schema.optionalKey(InstallStepName),
  progress: Schema.optionalKey(Schema.Finite),
  reason: Schema.optionalKey(NodeText)
}).annotate({ identifier: "InstallProgress" })
export type InstallProgress = typeof InstallProgress.Type

/** Payload of an `expiring` event: when the server is deleted, RFC 3339. */
export const Expiring = Schema.Struct({ expires_at: TimeText }).annotate({ identifier: "Expiring" })
export type Expiring = typeof Expiring.Type

export const eventName = (topic: Topic): string => `${topic.charAt(0).toUpperCase()}${topic.slice(1)}Event`

const message = <T extends Topic, S extends Schema.Top>(topic: T, payload: S) =>
  Schema.Struct({
    Topic: Schema.Literal(topic),
    Data: Schema.Struct({
      server_id: Schema.String,
      payload,
      server: Schema.optionalKey(
        Schema.NullOr(Server).annotate({
          description: "With `include=server`: the server; null: it was deleted too long ago."
        })
      ),
      time: Schema.optionalKey(
        TimeText.annotate({ description: "With `include=time`: commit time, RFC 3339 in UTC." })
      )
    }),
    Cursor: Schema.optionalKey(Schema.Int)
  }).annotate({ identifier: eventName(topic) })

/** Message of both streams (spec 5.1). `Cursor` is there if the stream resumes, `server` and `time` with `include`. */
export const ServerEvent = Schema.Union([
  message("status", ServerStatus),
  message("crash", Crash),
  message("deleted", Schema.Null),
  message("install", InstallProgress),
  message("stats", ServerStats),
  message("expiring", Expiring),
  message("problem", Schema.NullOr(ShownProblem)),
  message("operation", Operation),
  message("schedule", ScheduleNews),
  message("backup", Backup)
]).annotate({ identifier: "ServerEvent" })
export type ServerEvent = typeof ServerEvent.Type
