/** Archives of files of servers: made while they are read, and unpacked as operations (spec 10.3, 10.7). */
import { Effect, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict } from "../../contract/domain/errors.ts"
import type { ArchiveFormat } from "../../contract/domain/Files.ts"
import type { Overwrite, UnpackTask } from "../../contract/domain/FileTask.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { FileRefused, MOST_ARCHIVES } from "../../contract/nodeApi/NodeFiles.ts"
import { requirePath } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { makeAccepted } from "../operations/http.ts"
import { Operations } from "../operations/Operations.ts"
import { attachment, failsLate, OCTETS } from "./content.ts"
import type { makeNodeAccess } from "./nodeAccess.ts"

type NodeAccess = Effect.Success<typeof makeNodeAccess>

interface Unpack {
  readonly path: string
  readonly to: string
  readonly overwrite?: Overwrite | undefined
}

interface Receive {
  readonly to: string
  readonly format?: ArchiveFormat | "" | undefined
  readonly overwrite?: Overwrite | "" | undefined
}

/** Returns the file name of an archive, after its only folder or file. */
const archiveName = (id: ServerId, paths: ReadonlyArray<string>, format: ArchiveFormat) => {
  const name = paths.length === 1 ? paths[0]?.split("/").at(-1) : undefined
  return `${name === undefined || name === "" ? id : name}.${format}`
}

/** Returns the response with an archive of paths. */
export const makeArchive = ({ limited }: NodeAccess) =>
  Effect.fnUntraced(
    function* (id: ServerId, paths: ReadonlyArray<string>, asked: ArchiveFormat | "" | undefined) {
      yield* Effect.forEach(paths, requirePath, { discard: true })
      yield* describeAudit({ paths })
      const format = asked === undefined || asked === "" ? "tar.zst" : asked
      const bytes = yield* limited(id, MOST_ARCHIVES, (files) => files.archive(id, { paths, format }))
      return HttpServerResponse.stream(bytes.pipe(failsLate({ server_id: id, path: paths[0] ?? "/" })), {
        contentType: OCTETS,
        headers: { "content-disposition": attachment(archiveName(id, paths, format)) }
      })
    },
    Effect.catchTag("LimitReached", limitResponse)
  )

const broken = new FileRefused({
  status: 409,
  detail: "the transfer was interrupted; nothing of the archive was unpacked",
  hint: "Send the archive again."
})

export const makeUnpacking = Effect.fnUntraced(function* ({ on, recordOf }: NodeAccess) {
  const accepted = yield* makeAccepted
  const operations = yield* Operations

  /** Begins to unpack an archive that lies on the server. */
  const unpack = Effect.fn("files.unpack")(function* (
    id: ServerId,
    { overwrite = "fail", path, to }: Unpack,
    prefer: string | undefined
  ) {
    yield* requirePath(path)
    yield* requirePath(to)
    yield* describeAudit({ paths: [path, to] })
    const { entry } = yield* on(id, (files) => files.stat(id, path))
    if (entry.type !== "file") {
      return yield* new Conflict({
        detail: `${path} is no file, but a ${entry.type}`,
        hint: "Name an archive: zip, tar, tar.gz or tar.zst."
      })
    }
    const task: UnpackTask = { kind: "unpack", path, to, overwrite }
    return yield* accepted(operations.begin("files.unpack", yield* recordOf(id), task), prefer)
  })

  /** Unpacks the body of a request; responds once its last byte has arrived. */
  const receive = Effect.fn("files.receive")(function* <E>(
    id: ServerId,
    { format = "", overwrite = "", to }: Receive,
    {
      bytes,
      request
    }: {
      readonly bytes: Stream.Stream<Uint8Array, E>
      readonly request: HttpServerRequest.HttpServerRequest
    }
  ) {
    yield* requirePath(to)
    yield* describeAudit({ paths: [to] })
    // A node that is away, or a server that is installed, is refused before the operation begins.
    yield* on(id, (files) => files.stat(id, "/"))
    const length = request.headers["content-length"]
    const task = {
      kind: "unpack" as const,
      to,
      overwrite: overwrite === "" ? ("fail" as const) : overwrite,
      ...(format === "" ? {} : { format }),
      ...(length === undefined ? {} : { size: Number(length) })
    }
    const received = Effect.gen(function* () {
      const begun = yield* operations.begin("files.unpack", yield* recordOf(id), task, { state: "running" })
      yield* on(id, (files) =>
        files.receive(
          id,
          { operation_id: begun.id, task },
          Stream.mapError(bytes, () => broken)
        )
      )
      return begun
    })
    return yield* accepted(received, request.headers.prefer)
  })

  return { receive, unpack }
})
