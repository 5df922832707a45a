import { readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { parse } from "yaml"
import { metrics } from "../../src/shared/observability/metrics.ts"
import { startChild } from "../support/child.ts"
import { debianProgram } from "../support/debianPrograms.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { makeKey } from "../support/keys.ts"
import { alone, connectedNode, freePort } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { becomes, commands, create, expectStatus, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const folder = resolve(import.meta.dirname, "../../deploy/monitoring")
const textOf = (name: string) => readFileSync(join(folder, name), "utf8")
const promtool = debianProgram("promtool", "prometheus")
const prometheus = debianProgram("prometheus", "prometheus")

const Rules = Schema.Struct({
  groups: Schema.Array(
    Schema.Struct({ rules: Schema.Array(Schema.Struct({ alert: Schema.String, expr: Schema.String })) })
  )
})
const Board = Schema.fromJsonString(
  Schema.Struct({
    panels: Schema.Array(
      Schema.Struct({
        title: Schema.String,
        targets: Schema.optionalKey(Schema.Array(Schema.Struct({ expr: Schema.String })))
      })
    )
  })
)
const rules = Schema.decodeUnknownSync(Rules)(parse(textOf("alerts.yml"))).groups.flatMap(
  (group) => group.rules
)
/** Queries of the board by title; Grafana replaces the variable. */
const queries = Schema.decodeUnknownSync(Board)(textOf("grafana.json")).panels.flatMap(
  ({ targets = [], title }) =>
    targets.map(({ expr }) => ({ title, expr: expr.replaceAll("$__rate_interval", "1m") }))
)

const ran = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
  const child = yield* startChild([promtool.path, ...args], { cwd: folder })
  const code = yield* child.exited("60 seconds")
  return { code, output: child.output() }
}, Effect.scoped)

const passes = (...args: ReadonlyArray<string>) =>
  Effect.map(ran(args), ({ code, output }) => assert.strictEqual(code, 0, output))

/** The files, with keys and targets of a test. */
const copied = Effect.fnUntraced(function* (options: {
  readonly key: string
  readonly nodeKey: string
  readonly service: string
  readonly node: string
}) {
  const copy = yield* temporaryFolder
  const write = (name: string, text: string) => {
    writeFileSync(join(copy, name), text)
    return join(copy, name)
  }
  for (const name of ["alerts.yml", "alerts.test.yml"]) write(name, textOf(name))
  const config = textOf("prometheus.yml")
    .replace("/etc/prometheus/muster.key", write("key", options.key))
    .replace("/etc/prometheus/muster-node.key", write("node-key", options.nodeKey))
    .replace("127.0.0.1:5620", options.service)
    .replace("10.0.0.7:5585", options.node)
    .replaceAll("15s", "1s")
  return { copy, write, config: write("prometheus.yml", config) }
})

describe.runIf(promtool.run)(`deploy/monitoring: the rules${promtool.note}`, () => {
  it.live("promtool accepts the configuration and the rules, and their unit tests pass", () =>
    Effect.gen(function* () {
      const { config } = yield* copied({ key: "x", nodeKey: "x", service: "a:1", node: "b:2" })
      yield* passes("check", "config", config)
      yield* passes("test", "rules", "alerts.test.yml")
    }).pipe(Effect.scoped)
  )

  it.live(
    "every alert has a unit test in which it fires and one in which it does not; a changed rule fails them",
    () =>
      Effect.gen(function* () {
        const names = [...textOf("alerts.test.yml").matchAll(/alertname: (\w+)/g)].map(([, name]) => name)
        const expected = rules.flatMap(({ alert }) => [alert, alert])
        assert.deepStrictEqual(names.toSorted(), expected.toSorted())
        const { copy, write } = yield* copied({ key: "x", nodeKey: "x", service: "a:1", node: "b:2" })
        for (const { alert } of rules) {
          write("alerts.yml", textOf("alerts.yml").replace(`alert: ${alert}\n`, `alert: ${alert}Other\n`))
          const { code } = yield* ran(["test", "rules", join(copy, "alerts.test.yml")])
          assert.notStrictEqual(code, 0, alert)
        }
      }).pipe(Effect.scoped),
    // Each rule is a run of promtool.
    180_000
  )
})

describe("deploy/monitoring: names", () => {
  const known = new Map(metrics.map((metric) => [metric.name, metric]))
  const used = [...queries, ...rules.map(({ alert, expr }) => ({ title: alert, expr }))].flatMap(
    ({ expr, title }) =>
      [...expr.matchAll(/\b((?:muster|process)_\w+)(?:\{([^}]*)\})?/g)].map(([, name = "", labels = ""]) => ({
        title,
        name: name.replace(/_bucket$/, ""),
        labels: [...labels.matchAll(/(\w+)(?==)/g)].map(([label]) => label).filter((label) => label !== "job")
      }))
  )

  it("every metric and label of a query is in docs/metrics.md", () => {
    assert.isAbove(used.length, 60)
    const wrong = used.filter(
      ({ labels, name }) =>
        !labels.every((label) => Object.hasOwn(known.get(name)?.labels ?? {}, label)) || !known.has(name)
    )
    assert.deepStrictEqual(wrong, [])
  })
})

const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "broken.yml": softwareFile("broken", { install: { script: "exit 1" } })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game", { server: { restart: { on_crash: true, delay: 0 } } }),
    "broken.yml": blueprintFile("broken", "broken"),
    "large.yml": blueprintFile("large", "game", { server: { limits: { memory_limit: 60_000_000 } } })
  }
}

describe.runIf(prometheus.run)(`deploy/monitoring: the board${prometheus.note}`, () => {
  it.live(
    "a Prometheus with the configuration scrapes a service and a daemon, and every query of the board has a value",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const service = yield* startService({ env: { ...alone, ...env, MUSTER_OVERCOMMIT_MEMORY: "1" } })
        const nodeKey = "metrics-key-of-a-daemon-for-tests"
        const node = yield* connectedNode(service, "alpha", { env: { MUSTER_NODE_METRICS_KEY: nodeKey } })
        const { key } = yield* makeKey(service.dataDir, "prometheus", "Metrics")
        const at = yield* copied({
          key,
          nodeKey,
          service: new URL(service.url).host,
          node: new URL(node.url).host
        })
        const port = yield* freePort
        yield* startChild(
          [
            prometheus.path,
            `--config.file=${at.config}`,
            `--storage.tsdb.path=${join(at.copy, "data")}`,
            `--web.listen-address=127.0.0.1:${port}`
          ],
          { cwd: at.copy }
        )
        const query = (expr: string) =>
          Effect.tryPromise(async () => {
            const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(expr)}`
            const answer: unknown = await (await fetch(url)).json()
            return decodeAnswer(answer)
          })

        yield* subscribe(service)
        // An installation, a start, a crash with a restart, a failed installation, a refused placement, a wrong key.
        const id = yield* running(service, "kept")
        yield* commands(service, id, "exit 3")
        yield* eventually(
          service.request("GET", `/api/servers/${id}/crashes`),
          ({ json }) => json?.length > 0
        )
        yield* becomes(service, id, "running")
        yield* expectStatus(service, 202, "POST", `/api/servers/${id}/backups`, {
          body: {},
          headers: { authorization: `Bearer ${service.key}`, prefer: "wait=60" }
        })
        yield* create(service, "broken")
        yield* expectStatus(service, 503, "POST", "/api/servers", { body: { blueprint_id: "large" } })
        assert.strictEqual((yield* service.request("GET", "/api/nodes", { key: "wrong" })).status, 401)

        yield* eventually(
          Effect.orElseSucceed(query('count(up{job=~"muster|muster-node"} == 1)'), () => undefined),
          (answer) => answer?.data.result[0]?.value[1] === "2"
        )
        assert.isAbove(queries.length, 40)
        for (const { expr, title } of queries) {
          const answer = yield* eventually(query(expr), ({ data }) => data.result.length > 0).pipe(
            Effect.catch(({ message }) => Effect.die(new Error(`${title}: ${expr}: ${message}`)))
          )
          assert.strictEqual(answer.status, "success", expr)
        }
        // The rules are evaluated without an error, and none of those about an outage fires.
        const loaded = yield* Effect.tryPromise(async () => {
          const answer: unknown = await (await fetch(`http://127.0.0.1:${port}/api/v1/rules`)).json()
          return decodeRules(answer)
        })
        const states = loaded.data.groups.flatMap((group) => group.rules)
        assert.lengthOf(states, rules.length)
        assert.deepStrictEqual(
          states.filter(({ health }) => health === "err"),
          []
        )
        yield* node.kill("SIGKILL")
        yield* eventually(
          query("ALERTS{alertname='MusterDown',job='muster-node'}"),
          ({ data }) => data.result.length === 1
        )
      }).pipe(Effect.scoped),
    180_000
  )
})

const decodeAnswer = Schema.decodeUnknownSync(
  Schema.Struct({
    status: Schema.String,
    data: Schema.Struct({
      result: Schema.Array(Schema.Struct({ value: Schema.Tuple([Schema.Finite, Schema.String]) }))
    })
  })
)
const decodeRules = Schema.decodeUnknownSync(
  Schema.Struct({
    data: Schema.Struct({
      groups: Schema.Array(
        Schema.Struct({ rules: Schema.Array(Schema.Struct({ name: Schema.String, health: Schema.String })) })
      )
    })
  })
)
