/** Changes of files, whose outcomes the service returns by path or by server (spec 10.3). */
import { Console, Effect } from "effect"
import type { BulkOutcomes, Selector } from "../../contract/domain/Selector.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { acted, confirmed, targetsOf } from "../servers/power.ts"
import { CommandError, statusOf, withCommands } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"

const refusals = (outcomes: BulkOutcomes): ReadonlyArray<CommandError> =>
  Object.entries(outcomes).flatMap(([path, outcome]) => {
    if (!("code" in outcome)) return []
    const { code, detail, hint } = outcome
    const named = detail.includes(path) ? detail : `${path}: ${detail}`
    return [
      new CommandError({ status: statusOf[code] ?? "failed", message: withCommands(`${named}. ${hint}`) })
    ]
  })

/** Says what was done at each path. @error CommandError some paths refuse, with their reasons */
export const reported = Effect.fnUntraced(function* (outcomes: BulkOutcomes, done: (path: string) => string) {
  const refused = refusals(outcomes)
  for (const [path, outcome] of Object.entries(outcomes)) {
    if (!("code" in outcome)) yield* Console.log(done(path))
  }
  const [first, ...others] = refused
  if (first === undefined) return
  const status = others.every((other) => other.status === first.status) ? first.status : "failed"
  return yield* new CommandError({ status, message: refused.map(({ message }) => message).join("\n") })
})

/** Makes a folder and the missing ones above it. */
export const makeFolder = Effect.fnUntraced(function* (server: Server["id"], path: string) {
  const outcomes = yield* ask((muster) => muster.files.folder({ params: { server }, payload: { path } }))
  const [refused] = refusals(outcomes)
  if (refused !== undefined) return yield* refused
})

type Contents =
  | { readonly content: string }
  | { readonly from: { readonly server_id: Server["id"]; readonly path: string } }

/** Writes one file to all servers of a selector, after a question. */
export const writeToMany = Effect.fnUntraced(function* (
  selector: ReadonlyArray<string>,
  path: string,
  contents: Contents,
  yes: boolean
) {
  const targets = yield* targetsOf({ server: [], selector, yes })
  if (targets.servers.length === 0) return yield* Console.error("No servers match.")
  yield* confirmed(`Write ${path} on`, targets, yes)
  const many = (chosen: Selector) => writeOnce(chosen, path, contents)
  yield* acted(() => `has ${path}`, targets, { one: (id) => Effect.asVoid(many({ ids: [id] })), many })
})

export const writeOnce = (selector: Selector, path: string, contents: Contents) =>
  ask((muster) => muster.files.writeToMany({ payload: { selector, path, ...contents } }))
