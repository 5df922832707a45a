/** Clients that create, use and delete servers at any replica during faults, and record the responses. */
import { Effect } from "effect"
import type { Random } from "../support/random.ts"
import { adminKey } from "../support/Service.ts"
import { blueprints, memoryLimits } from "./definitions.ts"
import type { ClientRequest, CreateBody, ListPath, PatchBody, RolloutBody, ServerPath } from "./History.ts"
import { makeClient } from "./http.ts"
import { makeKeeping, makeKept } from "./keeping.ts"
import type { Recorder } from "./Recorder.ts"
import { keptOf, partsOf, requestOf } from "./requests.ts"
import { POPULATION } from "./settings.ts"
import { nodeIds } from "./setup.ts"

/** An acknowledged creation. */
interface Known {
  readonly id: string
  readonly key: string
  readonly body: CreateBody
}

/** Maximum pause between two requests of a client, in milliseconds. */
const MAX_PAUSE_MILLIS = 80
/** Minimum timeout of most clients, in milliseconds; the maximum is twice as long. */
const MIN_TIMEOUT_MILLIS = 1_200
const AGAIN_MILLIS = 150
/** Maximum number of further servers of an action on several. */
const MANY = 4
/** Seconds: the shortest that the service takes. */
const EXPIRES_IN = 10
/** Number of creations repeated at the end. */
const REPEATED = 200
/** Maximum attempts of a creation. */
const ATTEMPTS = 8

const lists: readonly [ListPath, ...ReadonlyArray<ListPath>] = [
  "/api/servers?include=status,limits,software",
  "/api/servers?ids_only=true",
  "/api/servers?ids_only=true",
  "/api/nodes",
  "/api/blueprints",
  "/api/system",
  "/healthz"
]
const serverPaths: readonly [ServerPath, ...ReadonlyArray<ServerPath>] = [
  "",
  "",
  "/status",
  "/install",
  "/logs",
  "/stats"
]
const actions = ["start", "start", "start", "stop", "stop", "restart", "kill", "pause", "unpause"] as const

/** @param writeBlueprints writes the blueprints of another generation */
export const makeClients = (
  recorder: Recorder,
  urls: ReadonlyArray<string>,
  writeBlueprints: (generation: number) => Effect.Effect<void>
) => {
  /** By id: servers without an acknowledged deletion. */
  const undeleted = new Map<string, Known>()
  const known: Array<Known> = []
  const drained = new Set<string>()
  /** Nodes with a drain or undrain in progress: one at a time, so that the last one is known. */
  const busy = new Set<string>()
  /** Servers whose expiry was changed. */
  const expiring = new Set<string>()
  /** Rollouts that may not be over. */
  const rollouts = new Set<string>()
  const kept = makeKept()
  let keys = 0
  let values = 0
  let generation = 0

  /** Sends requests and records the responses. */
  const sender = Effect.fnUntraced(function* (client: string) {
    const request = yield* makeClient(adminKey)
    return Effect.fnUntraced(function* (requested: ClientRequest, replica: number, timeoutMillis?: number) {
      const sent = recorder.now()
      const answer = yield* request(urls[replica] ?? "", requestOf(requested), timeoutMillis)
      const base = { client, replica, requested, sent, ended: recorder.now() }
      const operation = recorder.operation(
        "lost" in answer
          ? { ...base, status: undefined, lost: answer.lost }
          : { ...base, status: answer.status, ...keptOf(requested, answer) }
      )
      for (const part of partsOf(requested)) {
        recorder.operation({ ...operation, requested: part, ...operation.outcomes?.get(part.server) })
      }
      return operation
    })
  })

  /** One client, until `isOver`. */
  const client = Effect.fnUntraced(function* (name: string, random: Random, isOver: () => boolean) {
    const send = yield* sender(name)
    /** The replica that did not respond last; mostly another is chosen, as a balancer would. */
    let unresponsive: number | undefined
    const someReplica = () => {
      const one = random.below(urls.length)
      return one === unresponsive && random.below(6) > 0 ? (one + 1) % urls.length : one
    }

    const ask = Effect.fnUntraced(function* (requested: ClientRequest) {
      const replica = someReplica()
      const timeoutMillis =
        random.below(4) === 0 ? undefined : MIN_TIMEOUT_MILLIS + random.below(MIN_TIMEOUT_MILLIS)
      const operation = yield* send(requested, replica, timeoutMillis)
      if (operation.status === undefined) unresponsive = replica
      else if (replica === unresponsive) unresponsive = undefined
      return operation
    })

    const create = Effect.fnUntraced(function* (more: Partial<CreateBody> = {}) {
      const key = `model-${keys++}`
      const body: CreateBody = {
        ...more,
        blueprint_id: random.pick(blueprints),
        ...(random.below(8) === 0 ? { node_id: random.pick(nodeIds) } : {}),
        ...(random.below(2) === 0 ? { start: true } : {}),
        overrides: { env: { OPERATION: key } }
      }
      for (let attempt = 0; attempt < ATTEMPTS && !isOver(); attempt++) {
        const { detail = "", id, status } = yield* ask({ kind: "create", key, body })
        if (status === 202 && id !== undefined) {
          const server = { id, key, body }
          known.push(server)
          undeleted.set(id, server)
          return
        }
        // The backup is gone.
        if (status === 404 || status === 409) return
        // There is no capacity, and that does not change soon.
        if (status === 503 && !detail.startsWith("the database") && random.below(3) > 0) return
        yield* Effect.sleep(random.below(AGAIN_MILLIS))
      }
    })

    const repeat = Effect.suspend(() => {
      const one = known[random.below(known.length)]
      if (one === undefined) return Effect.void
      const { body, key } = one
      if (random.below(4) > 0) return ask({ kind: "create", key, body })
      return ask({ kind: "create-conflict", key, body: { ...body, start: body.start !== true } })
    })

    const drain = Effect.suspend(() => {
      const node = random.pick(nodeIds)
      if (busy.has(node)) return Effect.void
      busy.add(node)
      // Most nodes are to stay undrained.
      const isToBe = !drained.has(node) && drained.size < 2
      const move = isToBe && random.below(2) === 0
      const parallel = move && random.below(2) === 0 ? { parallel: 1 + random.below(4) } : {}
      return ask({ kind: "drain", node, drained: isToBe, move, ...parallel }).pipe(
        Effect.tap(({ status }) =>
          Effect.sync(() => {
            if (status !== 200) return
            if (isToBe) drained.add(node)
            else drained.delete(node)
          })
        ),
        Effect.ensuring(Effect.sync(() => busy.delete(node)))
      )
    })

    const someServer = () => {
      // Sometimes a deleted server.
      if (random.below(15) === 0) return known[random.below(known.length)]?.id
      return [...undeleted.keys()][random.below(undeleted.size)]
    }

    const someDeleted = () => {
      const { id } = known[random.below(known.length)] ?? {}
      return id === undefined || undeleted.has(id) ? undefined : id
    }
    const keeping = makeKeeping({
      ...{ ask, create, kept, random, someDeleted, someServer },
      returned: (id) => {
        const server = known.find((one) => one.id === id)
        if (server !== undefined) undeleted.set(id, server)
      }
    })

    const some = () =>
      Array.from({ length: 1 + random.below(MANY) }, someServer).filter((id) => id !== undefined)

    const patch = (server: string) => {
      const own = name.replaceAll(" ", "_").toUpperCase()
      const memory_limit = random.pick(memoryLimits)
      const overrides = [
        { env: { [own]: String(values++) } },
        { limits: { memory_limit } },
        undefined,
        undefined
      ][random.below(4)]
      const body: PatchBody = {
        ...(overrides === undefined ? {} : { overrides }),
        ...(random.below(4) === 0 ? {} : { labels: { [name.replaceAll(" ", "-")]: String(values++) } }),
        ...(random.below(6) === 0 ? { expires_in: random.below(2) === 0 ? null : EXPIRES_IN } : {})
      }
      if (body.expires_in !== undefined) expiring.add(server)
      return ask({ kind: "patch", server, body })
    }

    const reload = Effect.gen(function* () {
      if (random.below(2) === 0) yield* writeBlueprints(++generation)
      yield* ask({ kind: "reload", folder: random.pick(["blueprints", "blueprints", "software"] as const) })
    })

    const rollOut = Effect.suspend(() => {
      const ids = [...new Set(some())]
      const known = [...rollouts]
      const rollout = known[random.below(known.length)]
      if (rollout !== undefined && (random.below(2) === 0 || ids.length === 0)) {
        const change = random.pick(["pause", "resume", "resume", "abort"] as const)
        return Effect.tap(ask({ kind: "change-rollout", rollout, change }), ({ status }) =>
          Effect.sync(() => {
            if (change === "abort" && status === 200) rollouts.delete(rollout)
          })
        )
      }
      if (ids.length === 0) return Effect.void
      const body: RolloutBody = {
        selector: { ids },
        max_parallel: 1 + random.below(3),
        on_failure: random.pick(["pause", "continue", "rollback"] as const),
        restart: random.pick(["now", "when_stopped"] as const),
        start_timeout: 5,
        ...(random.below(3) === 0 ? { canary: 1 } : {})
      }
      return Effect.tap(ask({ kind: "roll-out", body }), ({ id }) =>
        Effect.sync(() => {
          if (id !== undefined) rollouts.add(id)
        })
      )
    })

    const deleteMany = Effect.suspend(() => {
      const servers = [...new Set(some())]
      if (servers.length === 0) return Effect.void
      return Effect.tap(
        ask({ kind: "delete-many", servers, force: random.below(3) === 0 }),
        ({ outcomes = new Map() }) =>
          Effect.sync(() => {
            for (const [id, { status }] of outcomes)
              if (status === 200 || status === 404) undeleted.delete(id)
          })
      )
    })

    const act = Effect.suspend((): Effect.Effect<unknown> => {
      if (random.below(3) === 0) return keeping
      const what = random.below(100)
      const isFull = undeleted.size >= POPULATION
      if (what < (isFull ? 4 : 16)) return create()
      if (what < 20) return repeat
      if (what < 23) return drain
      if (what < 24) return reload
      if (what < 25) return ask({ kind: "ticket" })
      if (what < 33) return ask({ kind: "list", what: random.pick(lists) })
      if (what < 36) return ask({ kind: "get-node", node: random.pick(nodeIds) })
      const server = someServer()
      if (server === undefined) return create()
      if (what < 60) return ask({ kind: "get-server", server, what: random.pick(serverPaths) })
      if (what < 64) return ask({ kind: "commands", server, text: String(values++) })
      if (what < 67) return ask({ kind: "reinstall", server })
      if (what < 68) return ask({ kind: "reset", server })
      if (what < 73) return patch(server)
      if (what < 75) {
        const servers = [...new Set([server, ...some()])]
        return ask({ kind: "power-many", servers, action: random.pick(actions) })
      }
      if (what < 76) return deleteMany
      if (what < 78) return ask({ kind: "upgrade", server })
      if (what < 80) return rollOut
      if (what < (isFull ? 88 : 84)) {
        return Effect.tap(ask({ kind: "delete", server, force: random.below(3) === 0 }), ({ status }) =>
          Effect.sync(() => {
            if (status === 200 || status === 404) undeleted.delete(server)
          })
        )
      }
      return Effect.tap(ask({ kind: "power", server, action: random.pick(actions) }), ({ status }) =>
        Effect.sync(() => {
          if (status === 404) undeleted.delete(server)
        })
      )
    })

    while (!isOver()) {
      yield* act
      yield* Effect.sleep(random.below(MAX_PAUSE_MILLIS))
    }
  }, Effect.scoped)

  return {
    client,
    /** The ids of acknowledged creations. */
    servers: () => known.map(({ id }) => id),
    /** Undrains every node, so that no further migration begins. */
    undrainAll: Effect.gen(function* () {
      const send = yield* sender("after")
      for (const node of nodeIds) {
        const requested = { kind: "drain", node, drained: false, move: false } as const
        let status: number | undefined
        for (let turn = 0; status !== 200; turn++) ({ status } = yield* send(requested, turn % urls.length))
      }
    }).pipe(Effect.scoped),
    /** Removes every expiry, so that no further server expires. */
    keepAll: Effect.gen(function* () {
      const send = yield* sender("after")
      for (const server of expiring) {
        const requested = { kind: "patch", server, body: { expires_in: null } } as const
        let status: number | undefined
        for (let turn = 0; status !== 200 && status !== 404 && status !== 409; turn++)
          ({ status } = yield* send(requested, turn % urls.length))
      }
    }).pipe(Effect.scoped),
    /** Aborts every rollout that is not over, also those without a response. */
    abortRollouts: Effect.gen(function* () {
      const request = yield* makeClient(adminKey)
      const send = yield* sender("after")
      const listed = request(urls[0] ?? "", { method: "GET", path: "/api/rollouts?limit=100" }).pipe(
        Effect.repeat({ while: (answer) => !("status" in answer) || answer.status !== 200 })
      )
      const answer = yield* listed
      const all: ReadonlyArray<{ readonly id: string; readonly finished_at?: string }> =
        "text" in answer ? JSON.parse(answer.text) : []
      for (const { finished_at, id } of all) {
        if (finished_at !== undefined) continue
        const requested = { kind: "change-rollout", rollout: id, change: "abort" } as const
        let status: number | undefined
        for (let turn = 0; status !== 200 && status !== 404 && status !== 409; turn++)
          ({ status } = yield* send(requested, turn % urls.length))
      }
    }).pipe(Effect.scoped),
    /** Pauses every schedule, also those without a response, so that no further run begins. */
    pauseSchedules: Effect.gen(function* () {
      const request = yield* makeClient(adminKey)
      const send = yield* sender("after")
      const answer = yield* request(urls[0] ?? "", { method: "GET", path: "/api/schedules?limit=100" }).pipe(
        Effect.repeat({ while: (one) => !("status" in one) || one.status !== 200 })
      )
      const all: ReadonlyArray<{ readonly id: string }> = "text" in answer ? JSON.parse(answer.text) : []
      for (const { id } of all) {
        const requested = { kind: "pause-schedule", schedule: id } as const
        let status: number | undefined
        for (let turn = 0; status !== 200 && status !== 404; turn++)
          ({ status } = yield* send(requested, turn % urls.length))
      }
    }).pipe(Effect.scoped),
    /** Repeats acknowledged creations, at any replica. */
    repeatAll: Effect.fnUntraced(function* (random: Random) {
      const send = yield* sender("after")
      for (const { body, key } of known.slice(-REPEATED)) {
        yield* send({ kind: "create", key, body }, random.below(urls.length))
      }
    }, Effect.scoped)
  }
}
