import { Effect } from "effect"
import { HttpApi } from "effect/http-api"
import { ApplicationApi } from "../../../src/api/ApplicationApi.ts"
import { neededRights } from "../../../src/api/rights.ts"
import type { KeyScope, Right } from "../../../src/domain/KeyScope.ts"
import { Muster } from "../../support/Muster.ts"
import { requestTo, type Service } from "../../support/Service.ts"
import { expectStatus } from "../../support/servers.ts"

/** Rights and limits of a key, as the body of its creation has them. */
interface Grant {
  readonly allow?: ReadonlyArray<Right>
  readonly servers?: ReadonlyArray<string>
  readonly blueprints?: ReadonlyArray<string>
  readonly labels?: Readonly<Record<string, string>>
  readonly max_servers?: number
  readonly max_memory?: number
  readonly quota?: string
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

interface ContractRoute {
  /** `group.endpoint`. */
  readonly name: string
  readonly method: string
  readonly path: string
  readonly right: Right | undefined
}

/** Every route of the contract, with the right that it needs. */
export const contractRoutes: ReadonlyArray<ContractRoute> = (() => {
  const routes: Array<ContractRoute> = []
  HttpApi.reflect(ApplicationApi, {
    onGroup: () => {},
    onEndpoint: ({ endpoint: { identifier, method, path }, group }) => {
      const name = `${group.identifier}.${identifier}`
      routes.push({ name, method, path, right: neededRights[name] })
    }
  })
  return routes
})()
