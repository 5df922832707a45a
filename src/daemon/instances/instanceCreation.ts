/** How a server gets on its node: made, given a later definition, or given back if it was deleted and is kept. */
import { join } from "node:path"
import { Effect, Option } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { type TracePlace, tracePlace } from "../../shared/observability/trace.ts"
import { makeFolder, PASSAGE, removeTree } from "../disk/fsio.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import { createInstanceFile, type InstanceFile } from "../state/InstanceFile.ts"
import { newestDefinition } from "../state/InstanceState.ts"
import type { Instance } from "./Instance.ts"
import type { RecentRemovals } from "./instanceRemoval.ts"
import type { KeptServers } from "./keptServers.ts"
import { type refusals, refuse } from "./refusals.ts"

const recentlyRemoved = (id: ServerId) =>
  refuse(409, `server was removed: ${id}`, "Check whether the server still exists.")
const nothingKept = (id: ServerId) =>
  refuse(404, `the files of the deleted server are not kept: ${id}`, "Create a new server.")

/** Returns a new server's uid, if it would be a plain process now. Else its installation gets one or fails. */
const initialUid = Effect.fnUntraced(function* (
  runtime: Runtime["Service"],
  { arrival, definition, id }: ServerSpec
) {
  const kind = yield* Effect.option(runtime.kindFor(definition))
  if (kind._tag === "None" || kind.value !== "process") return undefined
  const user = runtime.userFor(definition, { server: id })
  // A server that arrives stays on its node until there is a uid.
  if (arrival !== undefined) return (yield* user)?.uid
  return Option.getOrUndefined(yield* Effect.option(user))?.uid
})

interface CreationParts {
  readonly diskRefused: ReturnType<typeof refusals>["ofDisk"]
  readonly ofNode: ReturnType<typeof refusals>["ofNode"]
  readonly kept: KeptServers
  readonly now: () => number
  readonly open: (folder: string, file: InstanceFile, place: TracePlace) => Instance
  readonly find: (id: ServerId) => Instance | undefined
  readonly removals: RecentRemovals
  readonly runtime: Runtime["Service"]
  readonly serversDir: string
}

/** Returns how a server is made, given a later definition, or given back if it was deleted and is kept. */
export const makeCreation = (parts: CreationParts) => {
  const { diskRefused, find, kept, now, ofNode, open, removals, runtime, serversDir } = parts

  const make = Effect.fnUntraced(function* (spec: ServerSpec) {
    const folder = join(serversDir, spec.id)
    const uid = yield* initialUid(runtime, spec)
    // A user of its own passes through the folder.
    const file = yield* makeFolder(folder, uid === undefined ? undefined : PASSAGE).pipe(
      Effect.andThen(createInstanceFile(folder, spec, uid)),
      Effect.onError(() => Effect.andThen(Effect.ignore(removeTree(folder)), runtime.users.release(spec.id)))
    )
    open(folder, file, yield* tracePlace)
    removals.forget(spec.id)
    return file.get()
  })

  const define = Effect.fnUntraced(function* (existing: Instance, spec: ServerSpec) {
    const { file } = existing
    if ((spec.defined_at ?? 0) > newestDefinition(file.get())) yield* existing.define(spec)
    return file.get()
  })

  /** Gives a deleted server back, then a later definition, if there is one. */
  const restore = Effect.fnUntraced(function* (spec: ServerSpec) {
    const folder = join(serversDir, spec.id)
    const file = yield* Effect.mapError(kept.restore(spec, folder), diskRefused)
    if (file === undefined) return yield* nothingKept(spec.id)
    const instance = open(folder, file, yield* tracePlace)
    removals.forget(spec.id)
    return yield* define(instance, spec)
  })

  const makeOrDefine = (spec: ServerSpec) =>
    Effect.suspend(() => {
      const existing = find(spec.id)
      if (existing !== undefined) return define(existing, spec)
      if (spec.restore === true) return restore(spec)
      if (removals.covers(spec, now())) return Effect.fail(recentlyRemoved(spec.id))
      if (kept.has(spec.id)) return restore(spec)
      return Effect.mapError(make(spec), (error) =>
        error._tag === "IoError" ? diskRefused(error) : ofNode(error)
      )
    })

  return makeOrDefine
}
