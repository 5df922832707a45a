import { Effect } from "effect"
import { ApplicationApi } from "../../../../src/contract/api/ApplicationApi.ts"
import type { KeyScope, Right } from "../../../../src/contract/domain/Key.ts"
import { routesOf } from "../../../../src/controlPlane/http/routes.ts"
import { Muster } from "../../../support/Muster.ts"
import { requestTo, type Service } from "../../../support/Service.ts"
import { expectStatus } from "../../../support/servers.ts"

/** Rights and limits of a key, as the body of its creation has them. */
interface Grant {
  readonly allow?: ReadonlyArray<Right>
  readonly servers?: ReadonlyArray<string>
  readonly blueprints?: ReadonlyArray<string>
  readonly labels?: Readonly<Record<string, string>>
  readonly paths?: ReadonlyArray<string>
  readonly max_servers?: number
  readonly max_memory?: number
  readonly quota?: string
  /** Seconds. */
  readonly expires_in?: number
}

/** Creates a key over the API; returns requests with it. */
export const keyed = Effect.fnUntraced(function* (scope: KeyScope, grant: Grant = {}) {
  const api = yield* Muster
  const { json } = yield* expectStatus(api, 201, "POST", "/api/keys", {
    body: { name: "test", scope, ...grant }
  })
  const key: string = json.key
  return { ...api, key, id: json.id, request: requestTo(api.url, key) } satisfies Service & { id: string }
})

/** Every route of the contract, with its policy. */
export const contractRoutes = routesOf(ApplicationApi)
