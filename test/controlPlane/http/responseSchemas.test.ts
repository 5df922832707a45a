import { assert, layer } from "@effect/vitest"
import { Effect, Predicate, Schema } from "effect"
import { HttpApi, HttpApiSchema } from "effect/http-api"
import ssh2 from "ssh2"
import { ApplicationApi } from "../../../src/contract/api/ApplicationApi.ts"
import { ServerEvent } from "../../../src/contract/domain/ServerEvent.ts"
import { storeOperation } from "../../support/database.ts"
import { blueprintFile, writeFiles } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { rollOut } from "../../support/rollouts.ts"
import { becomes, commands, create, expectStatus, powered, running } from "../../support/servers.ts"
import { archive, member } from "../../support/tar.ts"
import { byDocument, paths } from "./support/document.ts"
import { games, options, socket } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

interface Declared {
  readonly method: string
  readonly path: string
  readonly status: number
  readonly schemas: ReadonlyArray<Schema.Top>
}

/** Every endpoint with a response body, by `group.endpoint`. */
const declared = new Map<string, Declared>()
/** Paths of the event streams. */
const streams: Array<string> = []
HttpApi.reflect(ApplicationApi, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group, successes }) => {
    const isStream = [...endpoint.success].some((schema) => Predicate.hasProperty(schema, "sseMode"))
    if (isStream) streams.push(endpoint.path)
    for (const [status, schemas] of successes) {
      if (!schemas.every((schema) => HttpApiSchema.isNoContent(schema.ast))) {
        const { method, path } = endpoint
        const name = `${group.identifier}.${endpoint.identifier}`
        declared.set(declared.has(name) ? `${name} ${status}` : name, { method, path, status, schemas })
      }
    }
  }
})

const strict = { onExcessProperty: "error" } as const

/** Fails unless one of the declared schemas decodes the value without excess fields. */
const decodes = (schemas: ReadonlyArray<Schema.Top>, value: unknown, name: string) => {
  const union = Schema.make<Schema.Codec<unknown>>(Schema.Union(schemas).ast)
  assert.strictEqual(Schema.decodeUnknownResult(union, strict)(value)._tag, "Success", name)
}

const bucket = {
  type: "s3",
  endpoint: "http://s3.invalid",
  region: "eu-west-1",
  bucket: "backups",
  prefix: "muster",
  access_key_id: "AKIA",
  secret_access_key: "secret"
}

/** More paths than one request changes: an operation begins. */
const many = Array.from({ length: 1_001 }, (_, n) => `/many${n}`)

interface Asked {
  readonly query?: string
  readonly body?: unknown
  /** A body that is not JSON. */
  readonly raw?: string
}

const publicKey = ssh2.utils.generateKeyPairSync("ed25519").public

/** The requests to each endpoint; `:server` and `:node` stand for those of the test. */
const requests: Record<string, ReadonlyArray<Asked>> = {
  "nodes.list": [{}, { query: "?ids_only=true" }],
  "nodes.get": [{}],
  "nodes.system": [{}],
  "nodes.drained": [
    { query: "?dry_run=true", body: { drained: true } },
    { body: { drained: true, move: true, parallel: 5, deadline: 60, notify: "bye", notify_seconds: 1 } },
    { body: { drained: true } },
    { body: { drained: false } }
  ],
  "system.info": [{}, { query: "?include=sftp,keep_deleted" }],
  "system.settings": [{}],
  "system.log": [{}],
  "servers.list": [
    {},
    { query: "?ids_only=true" },
    { query: "?include=status,limits,software" },
    { query: "?deleted=true&include=status,name" }
  ],
  "servers.create": [
    { body: { blueprint_id: "kept" } },
    { body: { blueprint_id: "kept", overrides: { limits: { memory_limit: 80 }, env: { A: "b" } } } }
  ],
  "servers.create 200": [{ query: "?dry_run=true", body: { blueprint_id: "kept" } }],
  "servers.get": [
    {},
    {
      query:
        "?include=status,limits,software,labels,name,install,last_crash,ports,expires_at,updated_at,stats"
    }
  ],
  "servers.crashesOf": [{}],
  "servers.crashes": [{}],
  "servers.patch": [{ body: { name: "one", labels: { a: "b" }, expires_in: 3600 } }],
  "servers.upgrade": [{ body: { dry_run: true } }],
  "servers.upgrade 202": [{ body: {} }],
  "servers.powerMany": [{ body: { selector: { ids: ["nothing"] }, action: "stop" } }],
  "servers.undelete": [{}],
  "servers.removeMany": [{ body: { selector: { ids: ["nothing"] } } }],
  "rollouts.create": [{ body: { selector: { blueprint_id: "kept" } } }],
  "rollouts.create 200": [{ query: "?dry_run=true", body: { selector: { blueprint_id: "endless" } } }],
  "rollouts.list": [{}],
  "rollouts.get": [{}],
  "rollouts.pause": [{}],
  "rollouts.resume": [{}],
  "rollouts.abort": [{}],
  "sftp.login": [{}],
  "operations.list": [{}],
  "operations.get": [{}],
  "operations.cancel": [{}],
  "schedules.create": [
    {
      body: {
        name: "all",
        selector: { blueprint_id: "kept" },
        cron: "0 4 * * MON#2",
        only_if: { status: "running", min_uptime: 60 },
        steps: [
          { command: ["say hi"] },
          { wait: 1 },
          { power: "stop", wait_seconds: 60 },
          { warn: { line: "say {{left}}", at: [10, 1] } },
          { wait_for: "offline", timeout: 60 },
          { upgrade: {} },
          { backup: { name: "nightly", background: true } },
          { webhook: "none" }
        ]
      }
    }
  ],
  "schedules.create 200": [
    {
      query: "?dry_run=true",
      body: {
        name: "a",
        selector: { labels: { no: "one" } },
        cron: "0 4 * * *",
        steps: [{ webhook: "none" }]
      }
    }
  ],
  "schedules.list": [{}],
  "schedules.get": [{}],
  "schedules.patch": [{ body: { name: "b", only_if: null } }],
  "schedules.run": [{}],
  "schedules.runs": [{}],
  "schedules.getRun": [{}],
  "schedules.cancelRun": [{}],
  "backups.create": [{ body: { name: "a", labels: { a: "b" } } }],
  "backups.createMany": [{ body: { selector: { ids: ["nothing"] } } }],
  "backups.listOf": [{}],
  "backups.list": [{}, { query: "?limit=1&state=done" }],
  "backups.get": [{}],
  "backups.files": [{}, { query: "?path=/&limit=1" }],
  "backups.patch": [{ body: { pinned: true, expires_in: 3600 } }],
  "backups.verify": [{}],
  "backups.drill": [{ body: {} }],
  // The server of the test runs; `restore.test.ts` restores one.
  "backups.restore": [],
  "backups.restore 200": [{ query: "?dry_run=true" }],
  "backupTargets.list": [{}],
  "backupTargets.create": [{ body: { id: "second", ...bucket } }],
  "backupTargets.get": [{}],
  "backupTargets.patch": [{ body: { prefix: null, region: "eu-west-2" } }],
  "backupTargets.test": [{ body: {} }],
  "files.list": [{}, { query: "?limit=1&include=size" }],
  "files.folder": [{ body: { path: "/made" } }],
  "files.copy": [{ body: { copies: [{ from: "/server.sh", to: "/made/a" }] } }],
  "files.copy 202": [{ body: { copies: many.map((to) => ({ from: "/none", to })) } }],
  "files.move": [{ body: { moves: [{ from: "/made/a", to: "/made/b" }], overwrite: "replace" } }],
  "files.move 202": [{ body: { moves: many.map((to) => ({ from: "/none", to })) } }],
  "files.mode": [{ body: { paths: ["/made/b", "/none"], mode: "0600" } }],
  "files.mode 202": [{ body: { paths: many, mode: "0600" } }],
  "files.pack": [{ body: { paths: ["/server.sh"], to: "/packed.zip" } }],
  "files.receive": [{ query: "?path=/unpacked", raw: archive(member({ name: "./a" })).toString() }],
  "files.unpack": [{ body: { path: "/server.sh", to: "/unpacked", overwrite: "replace" } }],
  "files.search": [{ query: "?text=ready" }, { query: "?path=/&name=*.sh" }],
  "files.diff": [{}],
  "files.delete": [{ body: { paths: ["/made", "/none"] } }],
  "files.delete 202": [{ body: { paths: many } }],
  "files.writeToMany": [{ body: { selector: { ids: ["nothing"] }, path: "/a", content: "x" } }],
  "uploads.find": [{}],
  "servers.status": [{}],
  "servers.stats": [{}, { query: "?update_disk_usage=true" }],
  "servers.statsOfMany": [{}, { query: "?limit=1" }],
  "servers.logs": [{}, { query: "?size=1" }],
  "servers.install": [{}],
  "servers.installLogs": [{}],
  "blueprints.list": [{}, { query: "?limit=1&page=2" }],
  "blueprints.get": [{}],
  "blueprints.mixins": [{}],
  "blueprints.mixin": [{}],
  "blueprints.softwareList": [{}],
  "blueprints.software": [{}],
  "blueprints.warnings": [{}],
  "blueprints.sources": [{}],
  "events.ticket": [{}],
  "keys.list": [{}],
  "keys.self": [{}],
  "sshKeys.add": [{ body: { public_key: publicKey } }],
  "sshKeys.list": [{}],
  "audit.list": [{}],
  "keys.create": [{ body: { name: "ci", scope: "Operator", allow: ["power"], expires_in: 60 } }],
  "quotas.list": [{}],
  "quotas.create": [{ body: { name: "team-b", max_servers: 1 } }],
  "quotas.get": [{}],
  "quotas.patch": [{ body: { max_cpu: 100 } }],
  "webhooks.list": [{}],
  "webhooks.create": [{ body: { url: "https://example.invalid/hook", label: "a=b", description: "one" } }],
  "webhooks.get": [{}],
  "webhooks.patch": [{ body: { format: "slack", label: null } }],
  "webhooks.test": [{}],
  "webhooks.replay": [{ body: { cursor: 0 } }],
  "webhooks.deliveries": [{}],
  "beside.banner": [{}],
  "beside.nodesPage": [{}],
  "beside.healthz": [{}],
  "beside.readyz": [{}],
  "metrics.page": [{}]
}

const definitions = {
  ...games,
  blueprints: {
    ...games.blueprints,
    "mixin.yml": JSON.stringify({
      mixin: { id: "common", description: "For all" },
      annotations: { tags: ["x"] }
    })
  }
}

const service = Muster.layer(definitions, { MUSTER_SFTP_PORT: "0" })

layer(service, options)("contract: responses match the declared schema", (it) => {
  it.effect("the test covers every endpoint with a body", () =>
    Effect.sync(() => {
      assert.deepStrictEqual(streams, ["/api/servers/:server/events", "/api/events"])
      assert.deepStrictEqual([...declared.keys()].toSorted(), [...Object.keys(requests)].toSorted())
    })
  )

  it.effect("every response decodes with the schema and the document, and has no other field", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const server = yield* running(api, "kept")
      const deleted = yield* running(api, "kept")
      yield* expectStatus(api, 200, "DELETE", `/api/servers/${deleted}`)
      const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes?ids_only=true")).json
      // A rollout that does not end: neither does the installation of its server.
      const installing = yield* create(api, "endless")
      const changed = blueprintFile("endless", "endless", { server: { version: "2.0" } })
      yield* writeFiles(api.folders.blueprints, { "endless.yml": changed })
      yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
      const rollout = yield* rollOut(api, { selector: { ids: [installing] } })
      const operation = yield* storeOperation(api, server)
      const { json: schedule } = yield* expectStatus(api, 201, "POST", "/api/schedules", {
        body: {
          name: "long",
          server_id: server,
          cron: "0 0 1 1 *",
          overlap: "queue",
          steps: [{ wait: 3600 }]
        }
      })
      const { json: run } = yield* expectStatus(api, 202, "POST", `/api/schedules/${schedule.id}/run`)
      // Each backup ends before the next request: a server has one at a time.
      const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
      yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, { body: {}, headers })
      const [backup] = (yield* expectStatus(api, 200, "GET", "/api/backups")).json
      const upload = yield* api.request("POST", `/api/servers/${server}/files/uploads`, {
        headers: {
          "tus-resumable": "1.0.0",
          "upload-length": "1",
          "upload-metadata": `path ${Buffer.from("/u").toString("base64")}`
        }
      })
      const { json: hook } = yield* expectStatus(api, 201, "POST", "/api/webhooks", {
        body: { url: "https://example.invalid/" }
      })
      yield* expectStatus(api, 201, "POST", "/api/backup-targets", { body: { id: "offsite", ...bucket } })
      yield* expectStatus(api, 201, "POST", "/api/quotas", { body: { name: "team-a", max_memory: 10 } })
      const { id: key } = yield* keyed("Operator", { allow: ["browse"] })
      const ids: Record<string, string> = {
        key,
        quota: "team-a",
        upload: upload.headers.get("location")?.split("/").at(-1) ?? "",
        rollout: rollout.id,
        operation,
        schedule: schedule.id,
        run: run.id,
        backup: backup.id,
        webhook: hook.id,
        target: "offsite",
        server,
        node,
        blueprint: "kept",
        mixin: "common",
        software: "game"
      }
      for (const [name, { method, path, schemas, status }] of declared) {
        for (const { body, query = "", raw } of requests[name] ?? []) {
          const own: Record<string, string> = {
            ...ids,
            ...(name === "servers.undelete" ? { server: deleted } : {})
          }
          const target = path.replaceAll(/:(\w+)/g, (_, id) => own[id] ?? id) + query
          const sent = raw === undefined ? (body === undefined ? {} : { body }) : { raw }
          const answer = yield* expectStatus(api, status, method, target, {
            ...sent,
            ...(name === "backups.restore 200" ? { body: { backup_id: backup.id } } : {}),
            ...(name.startsWith("backups.") ? { headers } : {})
          })
          const isJson = answer.headers.get("content-type") === "application/json"
          // The document describes lists of ids in words.
          if (isJson && !query.includes("ids_only")) {
            const { responses } = paths[path.replaceAll(/:(\w+)/g, "{$1}")][method.toLowerCase()]
            const refused = byDocument(
              (responses[status] ?? responses["2XX"]).content["application/json"].schema
            )
            assert.deepStrictEqual(refused(answer.json), [], `${name}: ${answer.text.slice(0, 500)}`)
          }
          decodes(schemas, isJson ? answer.json : answer.text, `${name}: ${answer.text.slice(0, 500)}`)
        }
      }
    })
  )

  it.effect("every event decodes with the schema, over SSE and WebSocket, with and without a cursor", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const id = yield* create(api, "kept")
      const extended =
        "cursor=now&include=server,time&topics=status,crash,deleted,install,stats,expiring&interval=1"
      const paths = streams.map((path) => path.replace(":server", id))
      const targets = paths.flatMap((path) => [path, `${path}?cursor=0`, `${path}?${extended}`])
      const sse = yield* Effect.forEach(targets, (target) => subscribe(api, target))
      const sockets = yield* Effect.forEach(["", "?cursor=0", `?${extended}`], (query) =>
        socket(api, `/api/events/ws${query}`)
      )
      yield* becomes(api, id, "offline")
      yield* powered(api, id, "start")
      yield* becomes(api, id, "running")
      yield* commands(api, id, "exit 3")
      yield* becomes(api, id, "offline")
      yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
      const received = [
        ...sse.map((stream) => () => stream.text().split("\n")),
        ...sockets.map(({ messages }) => messages)
      ]
      for (const messages of received) {
        const all = yield* eventually(Effect.sync(messages), (lines) =>
          lines.some((line) => line.includes('"deleted"') && line.includes(id))
        )
        assert.isTrue(all.some((line) => line.includes('"crash"')))
        for (const line of all) decodes([ServerEvent], JSON.parse(line), line)
      }
    })
  )
})
