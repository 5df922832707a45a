import { assert, describe, it } from "vitest"
import { ApplicationApi } from "../../src/api/ApplicationApi.ts"
import { Authorization } from "../../src/api/Authorization.ts"
import { NodeApi } from "../../src/api/NodeApi.ts"
import { declaredRoutes, makeRouteTable } from "../../src/http/RouteTable.ts"

const routes = [
  ...declaredRoutes(ApplicationApi, { strictQuery: true }),
  ...declaredRoutes(NodeApi, { strictQuery: false })
]
const { match } = makeRouteTable({ routes, pages: ["/docs"], unknown: Authorization.scopes })

/** The scopes of the API; the rights decide what the second and the third may do. */
const admin = "AppAdmin,Operator,ReadOnly"

const scopesOf = (method: string, url: string) => match(method, url).route.scopes?.join()

describe("spec 1.4: answers during the start", () => {
  it("a route whose answers may need the embedded node waits for it; those for other daemons do not", () => {
    const early = routes.filter(({ answersEarly }) => answersEarly).map(({ name }) => name)
    const ofDaemons = declaredRoutes(NodeApi, { strictQuery: false }).map(({ name }) => name)
    assert.sameMembers(early, [
      ...ofDaemons,
      "system.info",
      "system.settings",
      "system.log",
      "keys.list",
      "keys.create",
      "keys.self",
      "keys.revoke",
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
    assert.isTrue(match("GET", "/docs").route.answersEarly)
  })
})

describe("spec 1.5: the declared middleware decides the scope", () => {
  it("every declared route under /api requires a key; of the other routes only /metrics does", () => {
    for (const { path, scopes } of routes) {
      assert.strictEqual(scopes !== undefined, path.startsWith("/api/") || path === "/metrics", path)
    }
  })

  it.each([
    ["GET", "/api/nodes", admin],
    ["GET", "//api//nodes/?ids_only=true", admin],
    ["POST", "/api/nodes/n/register", "Node"],
    ["GET", "/metrics", "Metrics,AppAdmin"],
    ["GET", "/", undefined],
    ["GET", "/docs", undefined]
  ])("%s %s: a route has the scopes of its middleware", (method, url, scopes) => {
    assert.strictEqual(scopesOf(method, url), scopes)
    assert.isTrue(match(method, url).isKnown)
  })

  it.each([
    ["PUT", "/api/nodes", admin],
    ["GET", "/api/nodes/n/internal/heartbeat", "Node"],
    ["GET", "/api/nodes/n/register", "Node"],
    ["DELETE", "/metrics", "Metrics,AppAdmin"],
    ["OPTIONS", "/api/servers", admin],
    ["POST", "/nodes", undefined]
  ])("%s %s: a wrong method requires the scopes of the path", (method, url, scopes) => {
    assert.strictEqual(scopesOf(method, url), scopes)
    assert.isFalse(match(method, url).isKnown)
  })

  it.each([
    ["/api", admin],
    ["/api/nope", admin],
    ["/%61pi/nope", admin],
    ["/api;a", admin],
    [`/api/nodes/${"n".repeat(600)}`, admin],
    ["/api/nodes/n/internal/nowhere", "Node"],
    ["/api/nodes/n/nowhere", admin],
    ["/apix", undefined],
    ["/nope", undefined]
  ])("%s: an unknown path requires the scopes of its folder", (url, scopes) => {
    assert.strictEqual(scopesOf("GET", url), scopes)
    assert.isFalse(match("GET", url).isKnown)
  })
})
