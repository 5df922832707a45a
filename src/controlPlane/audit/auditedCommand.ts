import { Clock, Effect } from "effect"
import { AuditedRequest, CurrentAudit } from "../../contract/domain/AuditedRequest.ts"
import { auditId } from "../../contract/domain/idBytes.ts"

/** Changes keys from a command beside the service: the write adds an entry of the actor `cli`, with the status of the API. */
export const auditedCommand =
  (action: "key.create" | "key.revoke", id?: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Clock.currentTimeMillis, (now) =>
      Effect.provideService(
        self,
        CurrentAudit,
        new AuditedRequest({
          begin: { id: auditId(now), at: new Date(now).toISOString(), client: null, request_id: null },
          action,
          kind: "key",
          id,
          success: action === "key.create" ? 201 : 200,
          actor: { key_id: null, name: "cli", scope: null }
        })
      )
    )
