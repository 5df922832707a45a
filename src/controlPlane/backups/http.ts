import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { shownBackup } from "../../contract/domain/Backup.ts"
import { TooManyRequests } from "../../contract/domain/errors.ts"
import { labelCondition } from "../../contract/domain/Labels.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { makeBegins, orRoot, required } from "../files/http.ts"
import { respondWith } from "../http/conditional.ts"
import { filled, linkOf, pageAfter, pageResponse } from "../http/requestUrl.ts"
import { makeAccepted } from "../operations/http.ts"
import { respondWithFields } from "../servers/listHttp.ts"
import { makeBulk } from "../servers/ServerManager.ts"
import { Backups } from "./Backups.ts"
import { BackupTargets } from "./BackupTargets.ts"
import { makeContents } from "./contents.ts"
import { Drills } from "./Drills.ts"
import { Restores } from "./Restores.ts"

const PAGE = 20
const ENTRIES = 1000

interface PageQuery {
  readonly after?: string
  readonly blueprint_id?: string
  readonly label?: string | ReadonlyArray<string>
  readonly limit?: string
  readonly server_id?: string
  readonly since?: string
  readonly state?: string
  readonly target?: string
}

/** Handlers of the routes of backups (spec 12.1). */
export const BackupsHandlers = handlersOf(
  ApplicationApi,
  "backups",
  Effect.fn(function* (handlers) {
    const accepted = yield* makeAccepted
    const backups = yield* Backups
    const drills = yield* Drills
    const restores = yield* Restores
    const bulk = yield* makeBulk
    const begins = yield* makeBegins
    const contents = makeContents(backups)

    const pageOf = ({ blueprint_id, server_id, since = "", state, target, ...query }: PageQuery) => ({
      ...pageAfter(query, PAGE),
      ...filled({ server_id, blueprint_id, state, target }),
      ...(since === "" ? {} : { since: new Date(since).toISOString() })
    })
    const conditionsOf = ({ label = [] }: PageQuery) =>
      [label].flat().flatMap((text) => labelCondition(text) ?? [])
    const shown = (url: string, { next, records }: Effect.Success<ReturnType<typeof backups.list>>) =>
      pageResponse(url, records.map(shownBackup), next)

    return handlers.handleAll({
      create: ({ headers: { prefer }, params, payload }) =>
        accepted(backups.create(params.server, payload), prefer),
      restore: Effect.fnUntraced(function* ({ headers: { prefer }, params, payload, query }) {
        if (query.dry_run !== true) return yield* accepted(restores.restore(params.server, payload), prefer)
        yield* withoutAudit
        return HttpServerResponse.jsonUnsafe(yield* restores.plan(params.server, payload))
      }),
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
      files: Effect.fnUntraced(function* ({ params, query, request }) {
        const at = { path: orRoot(query.path), ...pageAfter(query, ENTRIES) }
        const { entries, next } = yield* contents.list(params.backup, at)
        return yield* respondWith(JSON.stringify(entries), linkOf(request.url, next))
      }),
      content: Effect.fnUntraced(function* ({ params: { backup }, query, request }) {
        const path = yield* required(query.path)
        yield* begins(["backup", backup, path])
        return yield* contents.read(backup, path, request)
      }),
      archive: Effect.fnUntraced(function* ({ params: { backup }, request }) {
        yield* begins(["backup", backup])
        return yield* contents.archive(backup, request)
      }),
      verify: Effect.fnUntraced(function* ({ headers: { prefer }, params }) {
        yield* describeAudit({ id: params.backup })
        return yield* accepted(backups.verify(params.backup), prefer)
      }),
      drill: ({ headers: { prefer }, params, payload }) =>
        accepted(drills.drill(params.backup, payload), prefer)
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
