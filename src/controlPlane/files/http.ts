import { Effect, Stream } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import type { PackRequest } from "../../contract/api/FilesGroup.ts"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest, NotFound } from "../../contract/domain/errors.ts"
import { type FileChange, formatOfName, isWithin } from "../../contract/domain/Files.ts"
import type { FileTask } from "../../contract/domain/FileTask.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { OperationKind } from "../../contract/domain/Operation.ts"
import { MOST_ENTRIES, MOST_SEARCHES } from "../../contract/nodeApi/NodeFiles.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { Tickets } from "../events/Tickets.ts"
import { respondWith } from "../http/conditional.ts"
import { CurrentPrincipal, requirePath, ServerAccess } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { linkOf, pageAfter } from "../http/requestUrl.ts"
import { makeAccepted } from "../operations/http.ts"
import { Operations } from "../operations/Operations.ts"
import { makeBulk } from "../servers/ServerManager.ts"
import { makeArchive, makeUnpacking } from "./archives.ts"
import { makeRead, makeWrite } from "./content.ts"
import { makeNodeAccess } from "./nodeAccess.ts"

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
const transfers = (
  kind: "move" | "copy",
  all: ReadonlyArray<FromTo>,
  overwrite: "fail" | "replace" = "fail"
): ReadonlyArray<FileChange> => all.map(({ from, to }) => ({ kind, from, path: to, overwrite }))

const makeChanges = Effect.fnUntraced(function* (nodes: Effect.Success<typeof makeNodeAccess>) {
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

const ENTRIES = 1000
const MATCHES = 100

const missing = (field: string) =>
  new InvalidRequest({
    detail: `query field ${field}: missing`,
    hint: `Send the path as ${field}=/plugins/x.jar.`
  })

export const required = (path = "") => (path === "" ? Effect.fail(missing("path")) : Effect.succeed(path))

export const orRoot = (path: string | undefined) => (path === undefined || path === "" ? "/" : path)

/** Returns a function that begins the download of a ticket, if the caller has one. */
export const makeBegins = Effect.map(
  Tickets,
  (tickets) => (what: ReadonlyArray<string>) =>
    tickets.open({ content: JSON.stringify(what), start: 0, cursor: undefined })
)

/** Handlers of the routes of files (spec 10.3). */
export const FilesHandlers = handlersOf(
  ApplicationApi,
  "files",
  Effect.fn(function* (handlers) {
    const nodes = yield* makeNodeAccess
    const servers = yield* ServerAccess
    const bulk = yield* makeBulk
    const begins = yield* makeBegins
    const archive = makeArchive(nodes)
    const unpacking = yield* makeUnpacking(nodes)
    const { change, pack } = yield* makeChanges(nodes)
    const read = makeRead(nodes)
    const write = makeWrite(nodes)
    const { limited, on } = nodes

    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ params: { server: id }, query, request }) {
        const path = orRoot(query.path)
        yield* requirePath(path)
        const page = pageAfter(query, ENTRIES)
        const sizes = query.include?.includes("size") === true
        const { entries, next } = yield* on(id, (files) => files.list(id, { path, sizes, ...page }))
        return yield* respondWith(JSON.stringify(entries), linkOf(request.url, next))
      }),
      read: Effect.fnUntraced(function* ({ params, query, request }) {
        const path = yield* required(query.path)
        yield* begins(["content", params.server, path])
        return yield* read(params.server, path, request)
      }),
      write: Effect.fnUntraced(function* ({ params, payload, query, request }) {
        return yield* write(
          params.server,
          { path: yield* required(query.path), mode: query.mode },
          request,
          payload
        )
      }),
      archive: Effect.fnUntraced(function* ({ params: { server: id }, query }) {
        const paths = [query.path ?? []].flat().filter((path) => path !== "")
        if (paths.length === 0) return yield* missing("path")
        yield* begins(["archive", id, ...paths])
        return yield* archive(id, paths, query.format)
      }),
      receive: ({ params, payload: bytes, query, request }) =>
        Effect.flatMap(required(query.path), (to) =>
          unpacking.receive(params.server, { ...query, to }, { bytes, request })
        ),
      unpack: ({ headers: { prefer }, params, payload }) => unpacking.unpack(params.server, payload, prefer),
      folder: ({ params, payload: { path } }) => change(params.server, [{ kind: "folder", path }]),
      move: ({ headers, params, payload: { moves, overwrite } }) =>
        change(params.server, transfers("move", moves, overwrite), headers),
      copy: ({ headers, params, payload: { copies, overwrite } }) =>
        change(params.server, transfers("copy", copies, overwrite), headers),
      delete: ({ headers, params, payload: { paths } }) => {
        const changes = paths.map((path) => ({ kind: "delete", path }) as const)
        return change(params.server, changes, headers)
      },
      mode: ({ headers, params, payload: { mode, paths } }) => {
        const changes = paths.map((path) => ({ kind: "mode", path, mode }) as const)
        return change(params.server, changes, headers)
      },
      pack: ({ headers, params, payload }) => pack(params.server, payload, headers),
      search: Effect.fnUntraced(
        function* ({ params: { server: id }, query }) {
          const path = orRoot(query.path)
          const { limit = "", name = "", text = "" } = query
          yield* requirePath(path)
          yield* text === "" ? withoutAudit : describeAudit({ paths: [path] })
          const asked = {
            path,
            ...(name === "" ? {} : { name }),
            ...(text === "" ? {} : { text }),
            case_sensitive: query.case === true,
            limit: limit === "" ? MATCHES : Number(limit)
          }
          const { incomplete, matches } = yield* limited(id, MOST_SEARCHES, (files) =>
            files.search(id, asked)
          )
          return yield* respondWith(
            JSON.stringify(matches),
            incomplete ? { "x-muster-incomplete": "true" } : {}
          )
        },
        Effect.catchTag("LimitReached", limitResponse)
      ),
      diff: Effect.fnUntraced(
        function* ({ params: { server: id } }) {
          const folders = (yield* CurrentPrincipal)?.paths
          const all = yield* limited(id, MOST_SEARCHES, (files) => files.diff(id))
          return folders === undefined
            ? all
            : all.filter(({ path }) => folders.some((folder) => isWithin(folder, path)))
        },
        Effect.catchTag("LimitReached", limitResponse)
      ),
      writeToMany: Effect.fnUntraced(function* ({ payload: { content, from, path, selector } }) {
        yield* requirePath(path)
        yield* describeAudit({ paths: [path] })
        const copied = Effect.fnUntraced(function* (
          id: ServerId,
          source: { readonly server_id: ServerId; readonly path: string }
        ) {
          const { entry, etag } = yield* on(source.server_id, (files) =>
            files.stat(source.server_id, source.path)
          )
          const bytes = yield* on(source.server_id, (files) =>
            files.read(source.server_id, { path: source.path, etag })
          )
          return yield* on(id, (files) => files.write(id, { path, size: entry.size }, bytes))
        }, Effect.scoped)
        if (from !== undefined) {
          yield* requirePath(from.path)
          if (!(yield* servers.mayRead(from.server_id)))
            return yield* yield* servers.explained(from.server_id, NotFound.server(from.server_id))
        }
        const bytes = new TextEncoder().encode(content)
        const outcomes = yield* bulk(selector, (id) =>
          Effect.asVoid(
            from === undefined
              ? on(id, (files) => files.write(id, { path, size: bytes.length }, Stream.make(bytes)))
              : copied(id, from)
          )
        )
        return Object.fromEntries(outcomes)
      })
    })
  })
)
