/** Clients that create, use and delete servers at any replica, whatever happens to it, and note what they are answered. */
import { Effect } from "effect"
import type { Random } from "../support/random.ts"
import { adminKey } from "../support/Service.ts"
import { blueprints } from "./definitions.ts"
import type { Asked, CreateBody, ListPath, LookPath } from "./History.ts"
import { makeClient } from "./http.ts"
import type { Recorder } from "./Recorder.ts"
import { keptOf, requestOf } from "./requests.ts"
import { POPULATION } from "./settings.ts"
import { nodeIds } from "./world.ts"

/** A creation that was acknowledged. */
interface Known {
  readonly id: string
  readonly key: string
  readonly body: CreateBody
}

/** Between two requests of a client at most, in milliseconds. */
const THINKING = 80
/** What most clients wait at least, and at most twice, before they abandon a request. */
const IMPATIENCE = 1_200
const AGAIN_MILLIS = 150
/** Creations that are asked for again in the end. */
const REPEATED = 200
/** Times that a creation is asked for before its client gives up. */
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
const looks: readonly [LookPath, ...ReadonlyArray<LookPath>] = [
  "",
  "",
  "/status",
  "/install",
  "/logs",
  "/stats"
]
const actions = ["start", "start", "start", "stop", "stop", "restart", "kill", "pause", "unpause"] as const

export const makeClients = (recorder: Recorder, urls: ReadonlyArray<string>) => {
  /** By id, those that nobody has been told are gone. */
  const alive = new Map<string, Known>()
  const known: Array<Known> = []
  const drained = new Set<string>()
  /** Nodes that somebody drains or undrains: one at a time, so that it is known what the last word was. */
  const busy = new Set<string>()
  let keys = 0

  /** What a client sends, and is answered, is noted. */
  const sender = Effect.fnUntraced(function* (client: string) {
    const request = yield* makeClient(adminKey)
    return Effect.fnUntraced(function* (asked: Asked, replica: number, patience?: number) {
      const sent = recorder.now()
      const answer = yield* request(urls[replica] ?? "", requestOf(asked), patience)
      const base = { client, replica, asked, sent, ended: recorder.now() }
      return recorder.operation(
        "lost" in answer
          ? { ...base, status: undefined, lost: answer.lost }
          : { ...base, status: answer.status, ...keptOf(asked, answer) }
      )
    })
  })

  /** One client, until `isOver`. */
  const client = Effect.fnUntraced(function* (name: string, random: Random, isOver: () => boolean) {
    const send = yield* sender(name)
    /** The replica that did not answer last: mostly another is asked, as a balancer would. */
    let silent: number | undefined
    const someReplica = () => {
      const one = random.below(urls.length)
      return one === silent && random.below(6) > 0 ? (one + 1) % urls.length : one
    }

    const ask = Effect.fnUntraced(function* (asked: Asked) {
      const replica = someReplica()
      const patience = random.below(4) === 0 ? undefined : IMPATIENCE + random.below(IMPATIENCE)
      const operation = yield* send(asked, replica, patience)
      if (operation.status === undefined) silent = replica
      else if (replica === silent) silent = undefined
      return operation
    })

    const create = Effect.gen(function* () {
      const key = `model-${keys++}`
      const body: CreateBody = {
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
          alive.set(id, server)
          return
        }
        // There is no room, and that does not change soon.
        if (status === 503 && !detail.startsWith("the database") && random.below(3) > 0) return
        yield* Effect.sleep(random.below(AGAIN_MILLIS))
      }
    })

    const repeat = Effect.suspend(() => {
      const one = known[random.below(known.length)]
      if (one === undefined) return Effect.void
      const { body, key } = one
      if (random.below(4) > 0) return ask({ kind: "create", key, body })
      return ask({ kind: "create-otherwise", key, body: { ...body, start: body.start !== true } })
    })

    const drain = Effect.suspend(() => {
      const node = random.pick(nodeIds)
      if (busy.has(node)) return Effect.void
      busy.add(node)
      // Most nodes are to be there.
      const isToBe = !drained.has(node) && drained.size < 2
      return ask({ kind: "drain", node, drained: isToBe, move: isToBe && random.below(2) === 0 }).pipe(
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
      // Now and then one that is gone.
      if (random.below(15) === 0) return known[random.below(known.length)]?.id
      return [...alive.keys()][random.below(alive.size)]
    }

    const act = Effect.suspend((): Effect.Effect<unknown> => {
      const what = random.below(100)
      const isFull = alive.size >= POPULATION
      if (what < (isFull ? 4 : 16)) return create
      if (what < 20) return repeat
      if (what < 23) return drain
      if (what < 24) return ask({ kind: "reload", folder: random.pick(["blueprints", "software"] as const) })
      if (what < 25) return ask({ kind: "ticket" })
      if (what < 33) return ask({ kind: "list", what: random.pick(lists) })
      if (what < 36) return ask({ kind: "look-at-node", node: random.pick(nodeIds) })
      const server = someServer()
      if (server === undefined) return create
      if (what < 60) return ask({ kind: "look", server, what: random.pick(looks) })
      if (what < 64) return ask({ kind: "commands", server })
      if (what < 67) return ask({ kind: "reinstall", server })
      if (what < 68) return ask({ kind: "reset", server })
      if (what < (isFull ? 80 : 74)) {
        return Effect.tap(ask({ kind: "delete", server, force: random.below(3) === 0 }), ({ status }) =>
          Effect.sync(() => {
            if (status === 200 || status === 404) alive.delete(server)
          })
        )
      }
      return Effect.tap(ask({ kind: "power", server, action: random.pick(actions) }), ({ status }) =>
        Effect.sync(() => {
          if (status === 404) alive.delete(server)
        })
      )
    })

    while (!isOver()) {
      yield* act
      yield* Effect.sleep(random.below(THINKING))
    }
  }, Effect.scoped)

  return {
    client,
    /** Puts every node back into placement: nothing begins to move any more. */
    undrainAll: Effect.gen(function* () {
      const send = yield* sender("after")
      for (const node of nodeIds) {
        const asked = { kind: "drain", node, drained: false, move: false } as const
        let status: number | undefined
        for (let turn = 0; status !== 200; turn++) ({ status } = yield* send(asked, turn % urls.length))
      }
    }).pipe(Effect.scoped),
    /** Asks for creations that were acknowledged once more, at any replica. */
    repeatAll: Effect.fnUntraced(function* (random: Random) {
      const send = yield* sender("after")
      for (const { body, key } of known.slice(-REPEATED)) {
        yield* send({ kind: "create", key, body }, random.below(urls.length))
      }
    }, Effect.scoped)
  }
}
