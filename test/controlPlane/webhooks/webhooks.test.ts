import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { startService } from "../../support/Service.ts"
import { becomes, commands, expectStatus, installed, power, powered, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { assertError, games, noNode, options, removed, service } from "../http/support/http.ts"
import { isSigned, messages, receiver } from "./receiver.ts"

const allowed = { MUSTER_WEBHOOK_ALLOW_PRIVATE: "true" }

/** Creates a webhook; returns its id and secret. */
const createWebhook = Effect.fnUntraced(function* (body: Readonly<Record<string, unknown>>) {
  const api = yield* Muster
  const { json } = yield* expectStatus(api, 201, "POST", "/api/webhooks", { body })
  return json
})

const webhook = Effect.fnUntraced(function* (id: string) {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "GET", `/api/webhooks/${id}`)).json
})

/** The patch of `c.json` fails: the file is UTF-16. */
const refused = {
  software: {
    ...games.software,
    "odd.yml": softwareFile("odd", {
      files: { "server.sh": consoleServer },
      install: { script: "printf '\\377\\376{' > c.json" }
    })
  },
  blueprints: {
    ...games.blueprints,
    "refused.yml": blueprintFile("refused", "odd", {
      server: { configs: { "c.json": { parser: "json", find: { x: 2 } } } }
    })
  }
}

const withRefused = Muster.layer(refused, {
  MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26100-26199",
  ...allowed
})

layer(withRefused, options)("webhooks", (it) => {
  describe("spec 7.2: deliveries", () => {
    it.effect("a delivery is the message of the streams with its cursor, signed with the secret", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const target = yield* receiver
        const { id, secret } = yield* createWebhook({ url: `${target.url}/hook?a=b` })
        assert.match(secret, /^whsec_[A-Za-z0-9+/]{32}$/)
        const stream = yield* subscribe(api, "/api/events?cursor=now")
        const server = yield* running(api, "kept")
        yield* removed(server)
        const received = yield* eventually(
          () => target.received(),
          (all) => messages(all, server).includes("deleted")
        )
        const sent = stream
          .text()
          .trim()
          .split("\n")
          .filter((line) => line.includes(server))
        assert.deepStrictEqual(messages(received, server), [
          "installing",
          "offline",
          "starting",
          "running",
          "deleted"
        ])
        for (const [index, request] of received.filter(({ body }) => body.includes(server)).entries()) {
          const { Cursor, ...message } = JSON.parse(request.body)
          assert.deepStrictEqual(message, JSON.parse(sent[index] ?? ""))
          assert.strictEqual(request.headers["webhook-id"], `msg_${id}_${Cursor}`)
          assert.strictEqual(request.headers["content-type"], "application/json")
          assert.strictEqual(request.path, "/hook?a=b")
          assert.isTrue(isSigned(request, secret))
          assert.isFalse(isSigned({ ...request, body: `${request.body} ` }, secret))
        }
        const shown = yield* webhook(id)
        assert.notProperty(shown, "secret")
        assert.deepInclude(shown, { id, state: "active", source: "api", format: "json" })
      })
    )

    it.effect("a webhook receives the events of its topics, blueprint and label", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [ofTopic, ofBlueprint, ofLabel] = [yield* receiver, yield* receiver, yield* receiver]
        yield* createWebhook({ url: ofTopic.url, topics: ["crash", "install"] })
        yield* createWebhook({ url: ofBlueprint.url, blueprint_id: "passing" })
        yield* createWebhook({ url: ofLabel.url, label: "team=red" })
        const red = yield* running(api, "kept", { labels: { team: "red" } })
        yield* installed(api, "kept", { labels: { team: "blue" } })
        const passing = yield* installed(api, "passing")
        yield* commands(api, red, "exit 3")
        yield* becomes(api, red, "offline")
        yield* removed(red)
        yield* removed(passing)
        yield* eventually(
          () => [ofTopic, ofBlueprint, ofLabel].map((one) => messages(one.received())),
          ([topic = [], blueprint = [], label = []]) =>
            topic.includes("crash") && blueprint.includes("deleted") && label.includes("deleted")
        )
        assert.deepStrictEqual([...new Set(messages(ofTopic.received()))].toSorted(), ["crash", "install"])
        assert.deepStrictEqual(messages(ofBlueprint.received()), messages(ofBlueprint.received(), passing))
        assert.deepStrictEqual(messages(ofLabel.received()), messages(ofLabel.received(), red))
        assert.include(messages(ofLabel.received()), "crash")
      })
    )

    it.effect(
      "a webhook receives expiries and problems if its topics name them, also as a line of text",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const [json, slack] = [yield* receiver, yield* receiver]
          yield* createWebhook({ url: json.url, topics: ["expiring", "problem"] })
          yield* createWebhook({ url: slack.url, format: "slack", topics: ["expiring", "problem"] })
          const id = yield* installed(api, "refused", { expires_in: 50 })
          const refused = assertError(yield* power(api, id, "start"), 422)
          const shown = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=expires_at,problem`)
          const { expires_at, problem } = shown.json
          assert.strictEqual(problem.detail, refused.detail)
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, {
            body: { overrides: { limits: { memory_limit: 48 } } }
          })
          const received = yield* eventually(
            () => [json, slack].map((one) => one.received().map(({ body }) => JSON.parse(body))),
            (all) => all.every(({ length }) => length === 3)
          )
          assert.deepStrictEqual(
            received[0]?.map(({ Data, Topic }) => [Topic, Data.payload]),
            [
              ["expiring", { expires_at }],
              ["problem", problem],
              ["problem", null]
            ]
          )
          assert.deepStrictEqual(
            received[1]?.map(({ text }) => text),
            [
              `refused (${id}) is deleted at ${expires_at}`,
              `refused (${id}) has a problem: ${refused.detail}`,
              `refused (${id}) has no problem now`
            ]
          )
          yield* removed(id)
        })
    )

    it.effect("discord and slack receive one line with the name of the server, and without mentions", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [discord, slack] = [yield* receiver, yield* receiver]
        yield* createWebhook({ url: discord.url, format: "discord", topics: ["crash", "deleted"] })
        yield* createWebhook({ url: slack.url, format: "slack", topics: ["crash", "deleted"] })
        const id = yield* running(api, "kept", { name: "@here <!channel>" })
        yield* commands(api, id, "exit 3")
        yield* becomes(api, id, "offline")
        yield* removed(id)
        const [line, last] = yield* eventually(
          () => discord.received(),
          (all) => all.length === 2
        )
        const [other, otherLast] = yield* eventually(
          () => slack.received(),
          (all) => all.length === 2
        )
        const named = `\\@here \\<!channel\\> \\(kept, ${id}\\)`
        assert.deepStrictEqual(JSON.parse(line?.body ?? ""), {
          content: `${named} crashed\\: exit code 3`,
          allowed_mentions: { parse: [] }
        })
        assert.strictEqual(JSON.parse(last?.body ?? "").content, `${named} was deleted`)
        const escaped = `@here &lt;!channel&gt; (kept, ${id})`
        assert.deepStrictEqual(JSON.parse(other?.body ?? ""), { text: `${escaped} crashed: exit code 3` })
        assert.deepStrictEqual(JSON.parse(otherLast?.body ?? ""), { text: `${escaped} was deleted` })
      })
    )

    it.effect(
      "a message that fails is repeated with the same id; later events of its server wait, others do not",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const target = yield* receiver
          const first = yield* installed(api, "kept")
          const second = yield* installed(api, "kept")
          yield* target.respond(({ body }) => (body.includes(first) ? 500 : 200))
          const { id } = yield* createWebhook({ url: target.url, topics: ["status"] })
          yield* powered(api, first, "start")
          yield* becomes(api, first, "running")
          const failing = yield* eventually(webhook(id), ({ state }) => state === "retrying")
          assert.strictEqual(failing.failure, "status 500")
          assert.isString(failing.failing_since)
          yield* powered(api, second, "start")
          yield* becomes(api, second, "running")
          const before = target.received().length
          // A change makes the next attempt at once.
          yield* expectStatus(api, 200, "PATCH", `/api/webhooks/${id}`, { body: { description: "again" } })
          yield* eventually(
            () => messages(target.received(), second),
            (all) => all.includes("running")
          )
          assert.deepStrictEqual([...new Set(messages(target.received(), first))], ["starting"])
          yield* target.respond(() => 200)
          yield* expectStatus(api, 200, "PATCH", `/api/webhooks/${id}`, { body: { description: null } })
          yield* eventually(
            () => messages(target.received(), first),
            (all) => all.includes("running")
          )
          assert.isAbove(target.received().length, before)
          const ofFirst = target.received().filter(({ body }) => body.includes(first))
          const ids = ofFirst.map(({ headers }) => headers["webhook-id"])
          assert.strictEqual(new Set(ids).size, 2)
          assert.deepStrictEqual(messages(target.received(), second), ["starting", "running"])
          const shown = yield* eventually(webhook(id), ({ state }) => state === "active")
          assert.notProperty(shown, "failure")
          assert.notProperty(shown, "description")
          const { json: deliveries } = yield* expectStatus(api, 200, "GET", `/api/webhooks/${id}/deliveries`)
          assert.deepInclude(deliveries.at(-1), { status: 500, error: "status 500", server_id: first })
          assert.notProperty(deliveries[0], "error")
        })
    )

    it.effect("a redirect is not followed; the test route says how an attempt went", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [target, other] = [yield* receiver, yield* receiver]
        yield* target.respond(() => ({ status: 302, headers: { location: other.url } }))
        const { id, secret } = yield* createWebhook({ url: target.url })
        const { json } = yield* expectStatus(api, 200, "POST", `/api/webhooks/${id}/test`)
        assert.deepInclude(json, { cursor: null, status: 302, error: "redirects are not followed" })
        assert.deepStrictEqual(other.received(), [])
        yield* target.respond(() => 200)
        const { json: second } = yield* expectStatus(api, 200, "POST", `/api/webhooks/${id}/test`)
        assert.notProperty(second, "error")
        const [last] = target.received().slice(-1)
        assert.isTrue(last !== undefined && isSigned(last, secret))
        const { json: deliveries } = yield* expectStatus(api, 200, "GET", `/api/webhooks/${id}/deliveries`)
        assert.deepStrictEqual(deliveries, [second, json])
      })
    )

    it.effect("a replay delivers the events after a cursor again; a cursor that is not retained is 410", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const target = yield* receiver
        const { id, cursor } = yield* createWebhook({ url: target.url, topics: ["deleted"] })
        const server = yield* installed(api, "kept")
        yield* removed(server)
        const count = () => messages(target.received(), server).length
        yield* eventually(count, (found) => found === 1)
        yield* expectStatus(api, 200, "POST", `/api/webhooks/${id}/replay`, { body: { cursor } })
        yield* eventually(count, (found) => found === 2)
        const [one, two] = target.received().filter(({ body }) => body.includes(server))
        assert.strictEqual(one?.headers["webhook-id"], two?.headers["webhook-id"])
        assertError(yield* api.request("POST", `/api/webhooks/${id}/replay`, { body: { cursor: 1e9 } }), 410)
      })
    )
  })

  describe("spec 7.1: routes", () => {
    it.effect("an address, topic, label or format that is not valid is 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const url = "https://example.com/hook"
        for (const body of [
          {},
          { url: "ftp://example.com" },
          { url: "https://user:pass@example.com" },
          { url: "example.com" },
          { url, topics: [] },
          { url, topics: ["stats"] },
          { url, label: "=x" },
          { url, format: "teams" },
          { url, secret: "mine" }
        ]) {
          assertError(yield* api.request("POST", "/api/webhooks", { body }), 422)
        }
      })
    )

    it.effect("a deleted webhook is 404 and receives nothing", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [target, other] = [yield* receiver, yield* receiver]
        const { id } = yield* createWebhook({ url: target.url })
        yield* createWebhook({ url: other.url })
        yield* expectStatus(api, 200, "DELETE", `/api/webhooks/${id}`)
        for (const [method, path] of [
          ["GET", ""],
          ["DELETE", ""],
          ["GET", "/deliveries"],
          ["POST", "/test"]
        ] as const) {
          assertError(yield* api.request(method, `/api/webhooks/${id}${path}`), 404)
        }
        const server = yield* installed(api, "kept")
        yield* eventually(
          () => messages(other.received(), server),
          (all) => all.includes("offline")
        )
        assert.deepStrictEqual(target.received(), [])
      })
    )
  })
})

layer(service(noNode), options)("webhooks with the standard settings", (it) => {
  it.effect("spec 7.3: loopback, link-local and private addresses are refused, also behind a name", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      for (const host of [
        "127.0.0.1",
        "[::1]",
        "169.254.169.254",
        "10.1.2.3",
        "[::ffff:192.168.0.1]",
        "[fd00::1]",
        "[fec0::1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[2001:0:7f00:1::]"
      ]) {
        const answer = yield* api.request("POST", "/api/webhooks", { body: { url: `http://${host}/` } })
        assertError(answer, 422, /MUSTER_WEBHOOK_ALLOW_PRIVATE=true/)
      }
      const target = yield* receiver
      const { id } = yield* createWebhook({ url: `http://localhost:${target.port}/` })
      const { json } = yield* expectStatus(api, 200, "POST", `/api/webhooks/${id}/test`)
      assert.match(json.error, /is a loopback address/)
      assert.deepStrictEqual(target.received(), [])
    })
  )

  it.effect("spec 7.1: the file of MUSTER_WEBHOOKS defines webhooks; SIGHUP reads it again", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = join(folder, "webhooks.yml")
      const secret = `whsec_${Buffer.alloc(24, 7).toString("base64")}`
      const write = (...ids: ReadonlyArray<string>) =>
        writeFileSync(
          file,
          JSON.stringify({
            webhooks: ids.map((id) => ({ id, url: "https://example.com/x", secret_env: "HOOK" }))
          })
        )
      write("one", "two")
      const api = yield* startService({ env: { ...noNode, MUSTER_WEBHOOKS: file, HOOK: secret } })
      const ids = Effect.map(expectStatus(api, 200, "GET", "/api/webhooks"), ({ json }) =>
        json.map(({ id }: { readonly id: string }) => id).toSorted()
      )
      yield* eventually(ids, (found) => found.join() === "one,two")
      assertError(yield* api.request("DELETE", "/api/webhooks/one"), 409, /the file of MUSTER_WEBHOOKS/)
      assertError(yield* api.request("PATCH", "/api/webhooks/one", { body: { format: "slack" } }), 409)
      write("two", "three")
      yield* Effect.sync(() => api.process.kill("SIGHUP"))
      yield* eventually(ids, (found) => found.join() === "three,two")
      writeFileSync(file, "webhooks: [{ id: bad }]")
      yield* Effect.sync(() => api.process.kill("SIGHUP"))
      yield* eventually(
        () => api.output(),
        (output) => output.includes("webhooks not reloaded")
      )
      assert.deepStrictEqual(yield* ids, ["three", "two"])
    }).pipe(Effect.scoped)
  )
})
