import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { includable } from "../../../src/contract/domain/Server.ts"
import { Topic } from "../../../src/contract/domain/ServerEvent.ts"
import { ServerStatus } from "../../../src/contract/domain/ServerStatus.ts"
import { Muster } from "../../support/Muster.ts"
import { assertError, noNode, options, service } from "./support/http.ts"

layer(service(noNode), options)("spec 1.4: several reasons for one request", (it) => {
  const refused = Effect.fnUntraced(function* (
    method: string,
    path: string,
    body: unknown,
    ...reasons: ReadonlyArray<string>
  ) {
    const api = yield* Muster
    const answer = yield* api.request(method, path, body === undefined ? {} : { body })
    const { detail = "" } = assertError(answer, 422)
    assert.sameMembers(
      detail.split("; ").filter((part) => !part.startsWith("did you mean")),
      [...reasons]
    )
  })

  describe("`detail` has all of them, joined by `; `", () => {
    it.effect("bodies", () =>
      refused(
        "POST",
        "/api/servers",
        { start: "yes", expires_in: 1, overrides: { save: 1, limits: { swap: "x" } }, x: 1 },
        "body field x: unknown field",
        "body field blueprint_id: required, but missing",
        "body field start: Expected boolean | null",
        "body field expires_in: Expected a value between 10 and 31536000",
        "body field overrides.save: Expected boolean | null",
        "body field overrides.limits.swap: Expected a number of MiB | null"
      )
    )

    it.effect("queries: values that cannot be read, and unknown parameters", () =>
      Effect.gen(function* () {
        const names = includable.join(", ")
        yield* refused(
          "GET",
          "/api/servers?limit=0&include=status,nope&label==a&label=ok&lable=b",
          undefined,
          "query field lable: unknown field",
          "query field limit: Expected a whole number from 1 to 1000",
          `query field include: expected ${names}, got "nope"`,
          'query field label: expected k=v, k!=v, k or !k, got "=a"'
        )
        yield* refused(
          "GET",
          "/api/nodes?a=1&b=2",
          undefined,
          "query field a: unknown field",
          "query field b: unknown field"
        )
        yield* refused(
          "GET",
          "/api/system?a=1&b=2",
          undefined,
          "query field a: unknown field",
          "query field b: unknown field"
        )
        yield* refused(
          "GET",
          "/api/servers?limit=1&limit=2",
          undefined,
          "query field limit: Expected once, but repeated"
        )
        yield* refused(
          "GET",
          "/api/crashes?since=1&limit=x",
          undefined,
          'query field since: expected a time such as 2026-01-31T12:00:00Z, got "1"',
          "query field limit: Expected a whole number from 1 to 100"
        )
        yield* refused(
          "GET",
          "/api/events?cursor=x&topics=a,status&include=b",
          undefined,
          "cursor: expected a whole number of at least 0, or now",
          `query field topics: expected ${Topic.literals.join(", ")}, got "a"`,
          'query field include: expected server, time, got "b"'
        )
      })
    )

    it.effect("a query and a body", () =>
      refused(
        "POST",
        "/api/servers?dry_run=maybe",
        {},
        "query field dry_run: Expected true or false",
        "body field blueprint_id: required, but missing"
      )
    )

    it.effect("selectors", () =>
      Effect.gen(function* () {
        yield* refused(
          "DELETE",
          "/api/servers",
          { selector: { blueprint_id: 1, status: "up", ids: "x" }, force: 1 },
          "body field selector.blueprint_id: Expected string | null",
          `body field selector.status: Expected ${ServerStatus.literals.map((one) => `"${one}"`).join(" | ")}`,
          "body field selector.ids: Expected array | null",
          "body field force: Expected boolean | null"
        )
        yield* refused(
          "DELETE",
          "/api/servers",
          { selector: { labels: ["=a", "ok", "!b=c"] } },
          'body field selector.labels: expected k=v, k!=v, k or !k, got "=a"',
          'body field selector.labels: expected k=v, k!=v, k or !k, got "!b=c"'
        )
      })
    )

    it.effect("fields below a name with a dot, which is in brackets", () =>
      refused(
        "POST",
        "/api/servers",
        { blueprint_id: "kept", overrides: { configs: { "server.properties": { fnd: {} } } } },
        'body field overrides.configs["server.properties"].find: required, but missing',
        'body field overrides.configs["server.properties"].fnd: unknown field'
      )
    )

    it.effect("labels whose keys are not valid", () =>
      refused(
        "POST",
        "/api/servers",
        { blueprint_id: "kept", labels: { Team: "a" } },
        "body field labels.Team: Expected a label key ([a-z0-9]([a-z0-9._/-]{0,62}))"
      )
    )

    it.effect("overrides that are not possible", () =>
      refused(
        "POST",
        "/api/servers",
        {
          blueprint_id: "kept",
          overrides: {
            software: "undefined-software",
            configs: { "../x": { parser: "file", find: {} } },
            env: { LD_PRELOAD: "x", LD_AUDIT: "y" }
          }
        },
        "software is not defined: undefined-software",
        "overrides.configs: the path `../x` contains `..`",
        "overrides.env.LD_PRELOAD: refused: the variables LD_* change how programs run",
        "overrides.env.LD_AUDIT: refused: the variables LD_* change how programs run"
      )
    )

    it.effect("a reason is named once, and ten reasons at most", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const ids = Array.from({ length: 20 }, () => 1)
        const answer = yield* api.request("DELETE", "/api/servers", { body: { selector: { ids } } })
        const reasons = assertError(answer, 422).detail?.split("; ") ?? []
        assert.deepStrictEqual([reasons.length, reasons.at(-1)], [11, "10 more"])
      })
    )
  })
})
