import { createHash } from "node:crypto"
import { Effect } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"
import type { ServersRequest } from "../../contract/api/ServersGroup.ts"
import { withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { NodeId } from "../../contract/domain/Id.ts"
import { defined } from "../../shared/work/defined.ts"
import { CurrentPrincipal, KeyEnds, ServerAccess } from "../http/Principal.ts"
import { preferredWait } from "../http/requestUrl.ts"
import { CurrentSlsRequest } from "../http/sls.ts"
import type { CreateRequest } from "./creation.ts"
import { ServerManager } from "./ServerManager.ts"
import { makeForSeconds } from "./waiting.ts"

type Request = ServersRequest<"create">

/** Returns the overrides that a body has beside `overrides`. */
export const runOverrides = <R, P>({ priority, run }: { readonly run?: R; readonly priority?: P }) => ({
  ...defined({ run, priority })
})

/** Returns the creation that a body asks for. Clients of SLS start each server, unless its blueprint says otherwise. */
const creationOf = (payload: Request["payload"], isSls: boolean): CreateRequest => {
  const { node_id = "", priority: _, run: __, ...same } = payload
  return {
    ...same,
    ...(node_id === "" ? {} : { node_id: NodeId.make(node_id) }),
    overrides: { ...payload.overrides, ...runOverrides(payload) },
    ...(isSls ? { startUnlessSaid: true } : {})
  }
}

const hashOf = (payload: Request["payload"], isSls: boolean): string => {
  const body = isSls && payload.start === undefined ? { ...payload, start: true } : payload
  return createHash("sha256").update(JSON.stringify(body)).digest("hex")
}

/** Creates a server, and waits for its outcome as long as `Prefer` allows (spec 3.3). */
export const makeCreate = Effect.gen(function* () {
  const servers = yield* ServerManager
  const keyEnds = yield* KeyEnds
  const access = yield* ServerAccess
  const forSeconds = yield* makeForSeconds

  /** Waits until a created server runs or is installed. Returns the response if it fails before that. */
  const failureWithin = Effect.fnUntraced(function* (
    { id, start }: Effect.Success<ReturnType<typeof servers.create>>,
    seconds: number
  ) {
    // The creation was accepted, so a key that is no longer valid gets its response without the outcome.
    const ends = Effect.raceFirst(keyEnds(yield* CurrentPrincipal), access.ends(id))
    const waiting = Effect.raceFirst(servers.waitFor(id, start ? "running" : "installed"), ends)
    return yield* forSeconds(waiting, seconds).pipe(
      Effect.as(undefined),
      // An unsaved server may have ended by now.
      Effect.catchTag("NotFound", () => Effect.succeed(undefined)),
      Effect.catchTag("Conflict", (error) => HttpServerRespondable.toResponse(error))
    )
  })

  return Effect.fnUntraced(function* ({ headers, payload, query }: Request) {
    const isSls = (yield* CurrentSlsRequest) !== undefined
    const asked = creationOf(payload, isSls)
    if (query.dry_run === true) return yield* Effect.andThen(withoutAudit, servers.plan(asked))
    const given = headers["idempotency-key"]
    // Each API key has a name space of its own.
    const key = `${(yield* CurrentPrincipal)?.key_id ?? ""}:${given}`
    const idempotency = given === undefined ? {} : { idempotency: { key, body_hash: hashOf(payload, isSls) } }
    const created = yield* servers.create({ ...asked, ...idempotency })
    const location = `/api/servers/${created.id}`
    const wait = preferredWait(headers.prefer)
    const failed = wait === undefined ? undefined : yield* failureWithin(created, wait)
    if (failed !== undefined) return HttpServerResponse.setHeader(failed, "location", location)
    return HttpServerResponse.text(created.body, {
      status: 202,
      contentType: "application/json",
      headers: { location, ...(wait === undefined ? {} : { "preference-applied": "wait" }) }
    })
  })
})
