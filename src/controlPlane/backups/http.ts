import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { shownBackup } from "../../contract/domain/Backup.ts"
import { TooManyRequests } from "../../contract/domain/errors.ts"
import { labelCondition } from "../../contract/domain/Labels.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { Tickets } from "../events/Tickets.ts"
import { attachment, OCTETS } from "../files/ranges.ts"
import { linkOf, pageAfter } from "../http/requestUrl.ts"
import { makeAccepted } from "../operations/http.ts"
import { respondWithFields } from "../servers/listHttp.ts"
import { makeBulk } from "../servers/ServerManager.ts"
import { Backups } from "./Backups.ts"
import { BackupTargets } from "./BackupTargets.ts"
import { Restores } from "./Restores.ts"

const PAGE = 20

interface PageQuery {
  readonly after?: string
  readonly blueprint_id?: string
  readonly label?: string | ReadonlyArray<string>
  readonly limit?: string
  readonly server_id?: string
  readonly since?: string
  readonly state?: string
}

/** Handlers of the routes of backups (spec 12.1). */
export const BackupsHandlers = handlersOf(
  ApplicationApi,
  "backups",
  Effect.fn(function* (handlers) {
    const accepted = yield* makeAccepted
    const backups = yield* Backups
    const restores = yield* Restores
    const bulk = yield* makeBulk
    const tickets = yield* Tickets

    const pageOf = ({ blueprint_id = "", server_id = "", since = "", state = "", ...query }: PageQuery) => ({
      ...pageAfter(query, PAGE),
      ...(server_id === "" ? {} : { server_id }),
      ...(blueprint_id === "" ? {} : { blueprint_id }),
      ...(state === "" ? {} : { state }),
      ...(since === "" ? {} : { since: new Date(since).toISOString() })
    })
    const conditionsOf = ({ label = [] }: PageQuery) =>
      [label].flat().flatMap((text) => labelCondition(text) ?? [])
    const shown = (url: string, { next, records }: Effect.Success<ReturnType<typeof backups.list>>) =>
      HttpServerResponse.jsonUnsafe(records.map(shownBackup), { headers: linkOf(url, next) })

    return handlers.handleAll({
      create: ({ headers: { prefer }, params, payload }) =>
        accepted(backups.create(params.server, payload), prefer),
      restore: ({ headers: { prefer }, params, payload }) =>
        accepted(restores.restore(params.server, payload), prefer),
      createMany: ({ payload: { selector, ...request } }) =>
        Effect.flatMap(
          bulk(selector, (id) =>
            backups.create(id, request).pipe(
              Effect.catchTag("LimitReached", ({ detail, hint }) => new TooManyRequests({ detail, hint })),
              Effect.asVoid
            )
          ),
          (outcomes) => respondWithFields(outcomes)
        ),
      listOf: Effect.fnUntraced(function* ({ params, query, request }) {
        const found = yield* backups.listOf(params.server, pageOf(query), conditionsOf(query))
        return shown(request.url, found)
      }),
      list: Effect.fnUntraced(function* ({ query, request }) {
        return shown(request.url, yield* backups.list(pageOf(query), conditionsOf(query)))
      }),
      get: ({ params }) => Effect.map(backups.find(params.backup), shownBackup),
      patch: Effect.fnUntraced(function* ({ params, payload }) {
        yield* describeAudit({ id: params.backup, changes: Object.keys(payload) })
        return shownBackup(yield* backups.patch(params.backup, payload))
      }),
      remove: Effect.fnUntraced(function* ({ params }) {
        yield* describeAudit({ id: params.backup })
        yield* backups.remove(params.backup)
      }),
      archive: Effect.fnUntraced(function* ({ params }) {
        yield* describeAudit({ id: params.backup })
        yield* tickets.open({
          content: JSON.stringify(["backup", params.backup]),
          start: 0,
          cursor: undefined
        })
        const { bytes, record } = yield* backups.archive(params.backup)
        return HttpServerResponse.stream(bytes, {
          contentType: OCTETS,
          ...(record.figures === null ? {} : { contentLength: record.figures.stored_bytes }),
          headers: { "content-disposition": attachment(`${record.server_id}-${record.id}.tar.zst`) }
        })
      }),
      verify: Effect.fnUntraced(function* ({ headers: { prefer }, params }) {
        yield* describeAudit({ id: params.backup })
        return yield* accepted(backups.verify(params.backup), prefer)
      })
    })
  })
)

/** Handlers of the routes of targets (spec 12.6). */
export const BackupTargetsHandlers = handlersOf(
  ApplicationApi,
  "backupTargets",
  Effect.fn(function* (handlers) {
    const targets = yield* BackupTargets
    return handlers.handleAll({
      list: () => targets.list,
      create: ({ payload }) => targets.create(payload),
      get: ({ params }) => targets.get(params.target),
      patch: ({ params, payload }) =>
        Effect.andThen(
          describeAudit({ changes: Object.keys(payload) }),
          targets.patch(params.target, payload)
        ),
      remove: ({ params }) => targets.remove(params.target),
      test: ({ params, payload }) => targets.test(params.target, payload.node_id)
    })
  })
)
