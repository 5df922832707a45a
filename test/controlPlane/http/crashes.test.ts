import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile } from "../../support/definitions.ts"
import { Muster } from "../../support/Muster.ts"
import { commands, create, expectStatus, installed, running } from "../../support/servers.ts"
import { assertError, games, options, removed } from "./support/http.ts"

const definitions = {
  software: games.software,
  blueprints: {
    ...games.blueprints,
    "noisy.yml": blueprintFile("noisy", "game"),
    "other.yml": blueprintFile("other", "game")
  }
}
const service = Muster.layer(definitions, {
  MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26900-26999",
  MUSTER_CRASHES_KEEP: "3"
})

interface Crash {
  readonly id: string
  readonly server_id: string
  readonly exit_code: number
}

const list = Effect.fnUntraced(function* (path: string) {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "GET", path)).json
})

/** Starts a server and ends its process with a line for its console. */
const crash = Effect.fnUntraced(function* (id: string, line: string) {
  const api = yield* Muster
  yield* expectStatus(api, 200, "POST", `/api/servers/${id}/power`, { body: { action: "start" } })
  yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=running`)
  yield* commands(api, id, line)
  yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=offline`)
})

layer(service, options)("servers", (it) => {
  describe("spec 3.18", () => {
    it.effect(
      "a crash is recorded with its cause, its times and its last lines, also of a deleted server",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          yield* commands(api, id, "hello", "exit 3")
          yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=offline`)
          const [record, ...others] = yield* list(`/api/servers/${id}/crashes`)
          assert.deepStrictEqual(others, [])
          const { crashed_at, id: crash_id, lines, node_id, started_at, uptime_seconds, ...rest } = record
          assert.deepStrictEqual(rest, {
            server_id: id,
            blueprint_id: "kept",
            version: "1.0",
            reason: "exit code 3",
            exit_code: 3,
            out_of_memory: false,
            restart: null
          })
          assert.strictEqual(uptime_seconds, (Date.parse(crashed_at) - Date.parse(started_at)) / 1000)
          assert.include(lines, "ready")
          assert.isTrue(lines.some((line: string) => line.includes("hello")))
          const shown = yield* list(`/api/servers/${id}?include=last_crash`)
          const { lines: _, ...summary } = record
          assert.deepStrictEqual(shown.last_crash, summary)

          yield* crash(id, "signal SEGV")
          const [newest, oldest] = yield* list(`/api/servers/${id}/crashes`)
          assert.deepInclude(newest, {
            signal: "SIGSEGV",
            reason: "signal: segmentation fault",
            exit_code: 139
          })
          assert.strictEqual(oldest.id, crash_id)
          yield* removed(id)
          assert.lengthOf(yield* list(`/api/servers/${id}/crashes`), 2)
          assert.deepStrictEqual(yield* list(`/api/crashes?node_id=${node_id}&limit=1`), [newest])
        })
    )

    it.effect("the newest crashes of each blueprint are kept; the list has filters and pages", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        const other = yield* installed(api, "other")
        yield* crash(other, "exit 9")
        for (const code of [1, 2, 4, 5]) yield* crash(id, `exit ${code}`)
        const codes = (crashes: ReadonlyArray<Crash>) => crashes.map(({ exit_code }) => exit_code)
        assert.deepStrictEqual(codes(yield* list("/api/crashes?blueprint_id=kept")), [5, 4, 2, 1])
        assert.deepStrictEqual(codes(yield* list("/api/crashes?blueprint_id=other")), [9])
        const first = yield* list("/api/crashes?limit=2")
        assert.deepStrictEqual(codes(first), [5, 4])
        assert.deepStrictEqual(codes(yield* list(`/api/crashes?limit=2&after=${first[1].id}`)), [2, 1])
        assert.deepStrictEqual(yield* list("/api/crashes?since=2099-01-01T00:00:00Z"), [])
        assert.deepStrictEqual(codes(yield* list("/api/crashes?since=2020-01-01T00:00:00Z&limit=1")), [5])
        yield* Effect.forEach([id, other], removed, { discard: true })
      })
    )

    it.effect(
      "docs/metrics.md: crashes by cause, installations by outcome, and the time of starts are counted",
      () =>
        Effect.gen(function* () {
          const { text } = yield* expectStatus(yield* Muster, 200, "GET", "/metrics")
          assert.match(text, /^muster_server_crashes_total\{cause="exit_code"\} 6$/m)
          assert.match(text, /^muster_server_crashes_total\{cause="signal"\} 1$/m)
          assert.match(text, /^muster_installations_total\{outcome="ready"\} 3$/m)
          assert.match(text, /^muster_installation_duration_seconds_count\{outcome="ready"\} 3$/m)
          assert.match(text, /^muster_server_start_duration_seconds_count 7$/m)
        })
    )

    it.effect("a server without crashes has an empty list; an unknown one is 404, an unknown value 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        assert.deepStrictEqual(yield* list(`/api/servers/${id}/crashes`), [])
        assert.isNull((yield* list(`/api/servers/${id}?include=last_crash`)).last_crash)
        assertError(yield* api.request("GET", "/api/servers/nothing/crashes"), 404)
        for (const query of ["limit=0", "since=yesterday", "after=nothing", "reason=x"]) {
          assertError(yield* api.request("GET", `/api/crashes?${query}`), 422, /query field/)
        }
        yield* removed(id)
      })
    )

    it.effect("the crashes of a deleted server are found by its last name", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "other", { name: "arena" })
        yield* crash(id, "exit 3")
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { name: "hall" } })
        const [record] = yield* list("/api/crashes?server=arena")
        assert.strictEqual(record.server_name, "arena")
        yield* removed(id)
        assert.deepStrictEqual(yield* list("/api/crashes?server=hall"), [record])
        assert.deepStrictEqual(yield* list(`/api/crashes?server=${id}`), [record])
        assert.deepStrictEqual(yield* list("/api/crashes?server=arena"), [])
      })
    )

    it.effect("the newest 5 crashes of each server stay until the server is deleted", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [victim, noisy] = [yield* installed(api, "noisy"), yield* installed(api, "noisy")]
        const codes = (id: string) =>
          Effect.map(list(`/api/servers/${id}/crashes`), (crashes: ReadonlyArray<Crash>) =>
            crashes.map(({ exit_code }) => exit_code)
          )
        yield* crash(victim, "exit 9")
        for (const code of [1, 2, 3, 4, 5, 6]) yield* crash(noisy, `exit ${code}`)
        assert.deepStrictEqual(yield* codes(noisy), [6, 5, 4, 3, 2])
        assert.deepStrictEqual(yield* codes(victim), [9])
        yield* removed(noisy)
        assert.deepStrictEqual(yield* codes(noisy), [6, 5, 4])
        assert.deepStrictEqual(yield* codes(victim), [9])
        yield* removed(victim)
      })
    )
  })
})
