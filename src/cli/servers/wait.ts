import { Effect } from "effect"
import { Flag } from "effect/cli"
import type { Server } from "../../contract/domain/Server.ts"
import { command } from "../shared/command.ts"
import { CommandError, withCommands } from "../shared/failures.ts"
import { ask, whileReachable } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { outputFlags, printList } from "../shared/output.ts"
import { DurationText, durationOf } from "../shared/times.ts"
import { servers, shownFields } from "./listing.ts"

const states = ["running", "offline", "installed"] as const
export type State = (typeof states)[number]

/** Whole seconds, or a duration with its unit. */
const secondsOrDuration = (text: string) => (/^\d+$/.test(text) ? `${text}s` : text)

export const timeoutFlag = Flag.String("timeout").pipe(
  Flag.withDescription("The longest time to wait: seconds, or 90s, 10m, 1h; default 10m"),
  Flag.map(secondsOrDuration),
  Flag.withDefault("10m"),
  Flag.withSchema(DurationText)
)

/**
 * Waits until a server is in a state.
 * @error CommandError the state is out of reach or the time is over (failed), the server was deleted (not found), or
 * the service cannot be reached any more (unreachable)
 */
export const waitFor = (id: Server["id"], state: State, timeout: string) =>
  ask((muster) =>
    muster.waitUntil(id, state, { timeout: durationOf(timeout), include: shownFields }).pipe(
      Effect.catchTags({
        Conflict: ({ detail, hint }) =>
          Effect.fail(CommandError.failed(withCommands(`${detail}. ${hint}`, id))),
        NotFound: () =>
          Effect.fail(
            CommandError.notFound(
              `server ${id} was deleted; \`muster servers crashes ${id}\` shows whether it crashed.`
            )
          )
      })
    )
  ).pipe(whileReachable)

export const wait = command("wait", {
  description:
    "Wait until a server is running, offline or installed. Ends with 1 and the reason if the server cannot reach the state, or if the time is over, with 3 if the server is deleted, and with 5 if the service does not respond for 10 s.",
  short: "Wait until a server is in a state",
  examples: {
    "muster servers wait survival-1 --for running --timeout 60": "At most a minute",
    "muster servers wait k7f --for offline": "Until the server has stopped"
  },
  input: {
    server: serverArgument,
    for: Flag.Literals("for", states).pipe(Flag.withDescription("The state to wait for")),
    timeout: timeoutFlag,
    ...outputFlags
  },
  *run({ for: state, server, timeout, ...flags }) {
    const { id } = yield* serverNamed(server)
    yield* printList(flags, servers, [yield* waitFor(id, state, timeout)], "")
  }
})
