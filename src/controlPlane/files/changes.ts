/** Changes of files by callers: outcomes, or an operation if there are many (spec 10.3). */
import { Effect } from "effect"
import type { PackRequest } from "../../contract/api/FilesGroup.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest } from "../../contract/domain/errors.ts"
import { type FileChange, formatOfName } from "../../contract/domain/Files.ts"
import type { FileTask } from "../../contract/domain/FileTask.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { OperationKind } from "../../contract/domain/Operation.ts"
import { MOST_ENTRIES } from "../../contract/nodeApi/NodeFiles.ts"
import { requirePath } from "../http/rights.ts"
import { makeAccepted } from "../operations/http.ts"
import { Operations } from "../operations/Operations.ts"
import type { makeNodeAccess } from "./nodeAccess.ts"

interface WaitHeaders {
  readonly prefer?: string
}

interface FromTo {
  readonly from: string
  readonly to: string
}

/** @error InvalidRequest two changes have one path, and so one outcome */
const checkDistinct = (paths: ReadonlyArray<string>) => {
  const seen = new Set<string>()
  const twice = paths.find((path) => seen.size === seen.add(path).size)
  return twice === undefined
    ? Effect.void
    : Effect.fail(
        new InvalidRequest({ detail: `body: ${twice} is there twice`, hint: "Name each path once." })
      )
}

/** Returns the changes of a request that moves or copies. */
export const transfers = (
  kind: "move" | "copy",
  all: ReadonlyArray<FromTo>,
  overwrite: "fail" | "replace" = "fail"
): ReadonlyArray<FileChange> => all.map(({ from, to }) => ({ kind, from, path: to, overwrite }))

export const makeChanges = Effect.fnUntraced(function* (nodes: Effect.Success<typeof makeNodeAccess>) {
  const accepted = yield* makeAccepted
  const operations = yield* Operations

  /** Begins an operation of a server and responds with it (spec 11.2). */
  const begin = Effect.fnUntraced(function* (
    kind: OperationKind,
    id: ServerId,
    task: FileTask,
    { prefer }: WaitHeaders
  ) {
    const record = yield* nodes.recordOf(id)
    return yield* accepted(operations.begin(kind, record, task), prefer)
  })

  /** Makes changes, or begins the operation that makes them; the caller must reach all of their paths. */
  const change = Effect.fnUntraced(function* (
    id: ServerId,
    changes: ReadonlyArray<FileChange>,
    headers: WaitHeaders = {}
  ) {
    const paths = changes.flatMap((one) => ("from" in one ? [one.from, one.path] : [one.path]))
    yield* Effect.forEach(paths, requirePath, { discard: true })
    yield* checkDistinct(changes.map(({ path }) => path))
    yield* describeAudit({ paths })
    const made = changes.length > MOST_ENTRIES ? "large" : yield* nodes.change(id, changes)
    return made === "large" ? yield* begin("files.change", id, { kind: "change", changes }, headers) : made
  })

  /** Begins to pack files into an archive; the caller must reach all paths. */
  const pack = Effect.fnUntraced(function* (
    id: ServerId,
    { overwrite = "fail", paths, to }: typeof PackRequest.Type,
    headers: WaitHeaders
  ) {
    const format = formatOfName(to) ?? "tar.zst"
    yield* Effect.forEach([...paths, to], requirePath, { discard: true })
    yield* describeAudit({ paths: [to, ...paths] })
    // What is missing is refused before the operation begins.
    yield* nodes.on(id, (files) =>
      Effect.forEach(paths, (path) => files.stat(id, path), { concurrency: 8, discard: true })
    )
    if (overwrite === "fail") {
      const there = yield* nodes
        .on(id, (files) => files.stat(id, to))
        .pipe(Effect.catchTag("NotFound", () => Effect.undefined))
      if (there !== undefined)
        return yield* new Conflict({
          detail: `${to}: it exists`,
          hint: "Send overwrite=replace, or choose another name."
        })
    }
    return yield* begin("files.pack", id, { kind: "pack", paths, to, format, overwrite }, headers)
  })

  return { change, pack } as const
})
