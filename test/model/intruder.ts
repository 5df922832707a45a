/** A key that is limited to servers which do not exist tries to read and change those of others during faults. */
import { Effect } from "effect"
import type { Random } from "../support/random.ts"
import type { ClientRequest } from "./History.ts"
import { makeClient } from "./http.ts"
import type { Recorder } from "./Recorder.ts"
import { keptOf, requestOf } from "./requests.ts"
import { nodeIds } from "./setup.ts"

/** Maximum pause between two requests, in milliseconds. */
const MAX_PAUSE_MILLIS = 150

/** A request about a server of others. */
const requestAbout = (server: string, random: Random): ClientRequest => {
  const servers = [server]
  const [first, ...others]: readonly [ClientRequest, ...ReadonlyArray<ClientRequest>] = [
    { kind: "power", server, action: "kill" },
    { kind: "delete", server, force: true },
    { kind: "patch", server, body: { labels: { owner: "limited" } } },
    { kind: "upgrade", server },
    { kind: "reinstall", server },
    { kind: "reset", server },
    { kind: "commands", server, text: "limited" },
    { kind: "back-up", server },
    { kind: "undelete", server },
    { kind: "get-server", server, what: "" },
    { kind: "get-server", server, what: "/logs" },
    { kind: "power-many", servers, action: "stop" },
    { kind: "delete-many", servers, force: true },
    {
      kind: "roll-out",
      body: {
        selector: { ids: servers },
        max_parallel: 1,
        on_failure: "continue",
        restart: "now",
        start_timeout: 5
      }
    },
    { kind: "list", what: "/api/servers?ids_only=true" },
    { kind: "drain", node: random.pick(nodeIds), drained: true, move: true }
  ]
  return random.pick([first, ...others])
}

/** @param servers ids of the servers of others */
export const intrude = Effect.fnUntraced(function* (options: {
  readonly recorder: Recorder
  readonly urls: ReadonlyArray<string>
  readonly key: string
  readonly servers: () => ReadonlyArray<string>
  readonly random: Random
  readonly isOver: () => boolean
}) {
  const { isOver, key, random, recorder, servers, urls } = options
  const request = yield* makeClient(key)
  while (!isOver()) {
    yield* Effect.sleep(random.below(MAX_PAUSE_MILLIS))
    const ids = servers()
    const server = ids[random.below(ids.length)]
    if (server === undefined) continue
    const requested = requestAbout(server, random)
    const replica = random.below(urls.length)
    const sent = recorder.now()
    const answer = yield* request(urls[replica] ?? "", requestOf(requested))
    const base = { client: "limited", replica, requested, sent, ended: recorder.now() }
    recorder.intrusion(
      "lost" in answer
        ? { ...base, status: undefined, lost: answer.lost }
        : { ...base, status: answer.status, ...keptOf(requested, answer) }
    )
  }
}, Effect.scoped)
