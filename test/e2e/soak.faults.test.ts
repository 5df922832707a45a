import { assert, describe, it } from "@effect/vitest"
import { Effect, Ref } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { holdings, type Memory, memoryOf, probed } from "../support/footprint.ts"
import { endLeftovers } from "../support/processes.ts"
import { freshSeed, type Random, seeded } from "../support/random.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, commands, create, expectStatus, power } from "../support/servers.ts"

const MINUTES = Number(process.env.MUSTER_TEST_SOAK ?? 0.5)
const ROUNDS = 10
const CLIENTS = 6
const SUBSCRIBERS = 4
const MIB = 1024 * 1024
/** The service remembers that many deleted servers, each in at most that many bytes. */
const MOST_DELETED = 10_000
const DELETED = 600
const seed = freshSeed()

const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "broken.yml": softwareFile("broken", { install: { script: "exit 3" } })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false }),
    "wide.yml": blueprintFile("wide", "game", { server: { ports: 3, limits: { memory_limit: 128 } } }),
    "broken.yml": blueprintFile("broken", "broken")
  }
}

/** The life of one server, from its installation to its deletion. */
const live = Effect.fnUntraced(function* (api: Service, random: Random, blueprint: string, id: ServerId) {
  if (blueprint === "broken") {
    yield* eventually(
      api.request("GET", `/api/servers/${id}?include=install`),
      ({ json }) => json.install?.phase === "failed"
    )
  } else {
    yield* becomes(api, id, "offline")
    yield* expectStatus(api, 200, "POST", `/api/servers/${id}/power`, { body: { action: "start" } })
    yield* becomes(api, id, "running")
    yield* commands(api, id, "hello", "there")
    yield* api.request("GET", `/api/servers/${id}/logs`)
    yield* api.request("GET", "/api/servers?include=status,stats")
    yield* random.pick([
      power(api, id, "restart"),
      power(api, id, "stop", 5),
      power(api, id, "kill"),
      commands(api, id, "exit 3"),
      api.request("PATCH", `/api/servers/${id}`, { body: { labels: { turn: "changed" } } })
    ])
  }
  const query = random.below(2) === 0 ? "?force=true&purge=true" : "?purge=true"
  yield* eventually(
    api.request("DELETE", `/api/servers/${id}${query}`),
    ({ status }) => status === 200 || status === 404
  )
})

/** Creates a server and leads its life; a failure is printed with the server's record, console and log lines. */
const life = Effect.fnUntraced(function* (api: Service, random: Random) {
  const blueprint = random.pick(["kept", "kept", "passing", "wide", "broken"])
  const id = yield* create(api, blueprint, { labels: { turn: String(random.below(5)) } })
  const printServer = Effect.gen(function* () {
    const record = yield* api.request("GET", `/api/servers/${id}?include=status,install,restart,updated_at`)
    const console = yield* api.request("GET", `/api/servers/${id}/logs`)
    const lines = api
      .output()
      .split("\n")
      .filter((line) => line.includes(id))
    yield* Effect.logError([record.text, console.text, ...lines].join("\n"))
  })
  yield* Effect.tapError(live(api, random, blueprint, id), () => printServer)
  return id
})

/** A subscriber that reads some events of a stream and leaves. */
const visit = Effect.fnUntraced(function* (api: Service, random: Random, over: Ref.Ref<boolean>) {
  const stream = yield* subscribe(api, random.pick(["/api/events", "/api/events?cursor=now&include=server"]))
  const enough = 1 + random.below(50)
  const isOver = Effect.map(Ref.get(over), (ended) => ended || stream.events().length >= enough)
  yield* eventually(isOver, Boolean, "60 seconds")
}, Effect.scoped)

describe(`life of the service: ${MINUTES} minutes of work (MUSTER_TEST_SOAK, in minutes)`, () => {
  it.live(
    `memory stays flat after the first tenth; no file, process, mount, cgroup or claim is left (MUSTER_TEST_SEED=${seed})`,
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({
          env: {
            ...env,
            ...probed,
            MUSTER_OVERCOMMIT_MEMORY: "1000",
            MUSTER_EVENTS_KEEP_COUNT: "200",
            MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27500-27599"
          }
        })
        yield* Effect.addFinalizer(() => endLeftovers(api.dataDir))
        const random = seeded(seed)
        const servers: Array<string> = []

        /** Clients and subscribers for a tenth of the time; returns once nothing is left to do. */
        const round = Effect.gen(function* () {
          const over = yield* Ref.make(false)
          const repeated = <A, E>(one: Effect.Effect<A, E>) =>
            Effect.repeat(Effect.andThen(one, Ref.get(over)), { until: (ended) => ended })
          const client = repeated(Effect.map(life(api, random), (id) => servers.push(id)))
          yield* Effect.all(
            [
              ...Array.from({ length: CLIENTS }, () => client),
              ...Array.from({ length: SUBSCRIBERS }, () => repeated(visit(api, random, over))),
              Effect.delay(Ref.set(over, true), `${MINUTES / ROUNDS} minutes`)
            ],
            { concurrency: "unbounded", discard: true }
          )
          const { json } = yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true")
          assert.deepStrictEqual(json, [])
        })

        const memories: Array<Memory> = []
        yield* round
        memories.push(yield* memoryOf(api))
        const before = yield* eventually(
          () => holdings(api, servers),
          ({ claims, folders, mounts }) => claims + folders.length + mounts.length === 0
        )
        for (let count = 1; count < ROUNDS; count++) {
          yield* round
          memories.push(yield* memoryOf(api))
        }
        const mib = (bytes: number) => (bytes / MIB).toFixed(1)
        yield* Effect.logInfo(
          `${servers.length} servers in ${MINUTES} minutes; MiB in use after each tenth: ${memories.map(({ used }) => mib(used)).join(", ")}; resident: ${memories.map(({ resident }) => mib(resident)).join(", ")}`
        )
        const after = yield* eventually(
          () => holdings(api, servers),
          (now) => JSON.stringify(now) === JSON.stringify(before)
        ).pipe(Effect.orElseSucceed(() => holdings(api, servers)))
        assert.deepStrictEqual(after, before)
        const [first, ...rest] = memories
        const growth = Math.min(...rest.slice(-3).map(({ used }) => used)) - (first?.used ?? 0)
        assert.isBelow(growth, 2 * MIB + Math.min(servers.length, MOST_DELETED) * DELETED)
      }).pipe(Effect.scoped),
    (MINUTES * 2 + 3) * 60_000
  )
})
