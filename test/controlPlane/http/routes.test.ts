import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { ApplicationApi } from "../../../src/contract/api/ApplicationApi.ts"
import { ControlPlaneApi } from "../../../src/contract/nodeApi/ControlPlaneApi.ts"
import { makePolicies, routesOf } from "../../../src/controlPlane/http/routes.ts"
import { Muster } from "../../support/Muster.ts"
import { assertError, noNode, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const routes = [...routesOf(ApplicationApi), ...routesOf(ControlPlaneApi)]
const policyOf = makePolicies(routes)

/** The scopes of the API; the rights decide what the second and the third may do. */
const admin = "AppAdmin,Operator,ReadOnly"

layer(service(noNode), options)("the policies of routes", (it) => {
  describe("spec 1.4: answers during the start", () => {
    it("a route whose answers may need the embedded node waits for it; those for other daemons do not", () => {
      const early = routes.filter(({ answersEarly }) => answersEarly === true).map(({ name }) => name)
      assert.sameMembers(early, [
        ...routesOf(ControlPlaneApi).map(({ name }) => name),
        "system.info",
        "system.settings",
        "system.log",
        "keys.list",
        "keys.create",
        "keys.self",
        "keys.revoke",
        "sshKeys.list",
        "sshKeys.add",
        "sshKeys.remove",
        "quotas.list",
        "quotas.create",
        "quotas.get",
        "quotas.patch",
        "quotas.remove",
        "audit.list",
        "beside.healthz",
        "beside.readyz",
        "metrics.page"
      ])
      assert.isTrue(policyOf("GET", "/docs").answersEarly)
    })
  })

  describe("spec 1.5: scopes", () => {
    it("every declared route under /api requires a key; of the other routes only /metrics does", () => {
      for (const { path, scopes } of routes) {
        assert.strictEqual(scopes !== undefined, path.startsWith("/api/") || path === "/metrics", path)
      }
    })

    it.each([
      ["GET", "/api/nodes", admin],
      ["POST", "/api/nodes/:node/register", "Node"],
      ["GET", "/metrics", "Metrics,AppAdmin"],
      ["GET", "/api/a-page", admin],
      ["GET", "/", undefined],
      ["GET", "/docs", undefined]
    ])(
      "%s %s: a route has the scopes of its policy; below /api, those of the application are the default",
      (method, path, scopes) => {
        assert.strictEqual(policyOf(method, path).scopes?.join(), scopes)
      }
    )

    it.effect.each(["AppAdmin", "Operator", "ReadOnly"] as const)(
      "an unknown path below /api is 404 with a key of the scope %s",
      (scope) =>
        Effect.gen(function* () {
          const api = yield* keyed(scope)
          const paths = [
            "/api",
            "/api/nope",
            "/%61pi/nope",
            `/api/nodes/${"n".repeat(600)}`,
            "/api/nodes/n/nope"
          ]
          for (const path of paths) assertError(yield* api.request("GET", path), 404)
        })
    )

    it.effect("a wrong method requires the scopes of another route of the path, before it is 405", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const node = yield* keyed("Node")
        assertError(yield* admin.request("PUT", "/api/nodes"), 405)
        assertError(yield* node.request("PUT", "/api/nodes"), 403)
        assertError(yield* node.request("GET", "/api/nodes/n/register"), 405)
        assertError(yield* admin.request("GET", "/api/nodes/n/register"), 403)
        assertError(yield* node.request("GET", "/api/nodes/n/internal/nope"), 404)
        assertError(yield* admin.request("GET", "/api/nodes/n/internal/nope"), 403)
        assertError(yield* node.request("DELETE", "/metrics"), 403)
        assertError(yield* admin.request("POST", "/nodes", { key: null }), 405)
        assertError(yield* admin.request("PROPFIND", "/api/nodes"), 405)
      })
    )
  })
})
