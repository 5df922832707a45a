/** Clients that create, power and delete servers of a service that is killed, and record the responses. */
import { Effect, Option } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "./definitions.ts"
import type { RestartingService } from "./faults/index.ts"
import type { Random } from "./random.ts"

export const chaosDefinitions = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": consoleServer },
      install: { script: "for n in 1 2 3 4 5 6 7 8 9; do echo step $n; done" }
    })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false }),
    "wide.yml": blueprintFile("wide", "game", { server: { ports: 2, limits: { memory_limit: 128 } } }),
    "boundless.yml": blueprintFile("boundless", "game", { save: false, server: { limits: {} } })
  }
}

const blueprints = ["kept", "passing", "wide", "boundless"] as const

/** The expected final state of a server; `any`: a response was lost, or arrived too early to determine the state. */
export type Expected = "up" | "down" | "gone" | "any"

/** A server whose creation was acknowledged. */
export interface Promised {
  readonly id: string
  readonly save: boolean
  readonly body: unknown
  readonly idempotencyKey: string
  /** The server was asked to crash and may do so at any time. */
  mayCrash: boolean
  expected: Expected
  deleted: "no" | "asked" | "acknowledged"
  /** Requests and responses for the server, in short form. */
  readonly history: Array<string>
}

export interface Chaos {
  readonly promised: ReadonlyArray<Promised>
  /** Number of requests whose response was lost. */
  readonly lost: () => number
  /** Responses that no expected state allows. */
  readonly surprises: ReadonlyArray<string>
  /** One client: works until all clients together have created the required number of servers. */
  readonly client: (name: string, random: Random) => Effect.Effect<void>
}

export const makeChaos = (restarting: RestartingService, total: number): Chaos => {
  const promised: Array<Promised> = []
  const surprises: Array<string> = []
  let begun = 0
  let lost = 0

  const send: RestartingService["send"] = (...request) =>
    Effect.tap(restarting.send(...request), (answer) =>
      Effect.sync(() => {
        if (Option.isNone(answer)) lost += 1
      })
    )

  /** Sends the same request until it gets a response. */
  const create = Effect.fnUntraced(function* (idempotencyKey: string, random: Random) {
    const blueprint_id = random.pick(blueprints)
    const start = random.below(2) === 0
    const body = { blueprint_id, start, overrides: { version: `1.${random.below(4)}` } }
    while (true) {
      const answer = Option.getOrUndefined(
        yield* send("POST", "/api/servers", { body, headers: { "idempotency-key": idempotencyKey } })
      )
      if (answer === undefined) continue
      if (answer.status !== 202) return yield* Effect.die(`creation: ${answer.status} ${answer.text}`)
      const server: Promised = {
        id: answer.json.id,
        save: blueprint_id === "kept" || blueprint_id === "wide",
        body,
        idempotencyKey,
        mayCrash: false,
        expected: start ? "up" : "down",
        deleted: "no",
        history: [start ? "created to start" : "created"]
      }
      promised.push(server)
      return server
    }
  })

  /** Returns the final state that the response to a power action implies. */
  const conclude = (server: Promised, action: string, status: number | undefined): Expected => {
    switch (status) {
      case undefined:
        return "any"
      case 404:
        return "gone"
      case 200:
        // A deletion without a response may have begun, and continues.
        if (server.deleted === "asked") return "any"
        if (action === "start" || action === "restart") return server.mayCrash ? "any" : "up"
        return "down"
      case 409:
        return server.expected
      case 502:
        // The node has removed it, and the service was killed before it deleted the record; the deletion continues.
        if (server.deleted === "asked") return "any"
        surprises.push(`${action} of ${server.id}: 502`)
        return "any"
      default:
        surprises.push(`${action} of ${server.id}: ${status}`)
        return "any"
    }
  }

  const power = Effect.fnUntraced(function* (server: Promised, random: Random) {
    const action = random.pick(["start", "start", "stop", "kill", "restart"])
    const answer = yield* send("POST", `/api/servers/${server.id}/power`, { body: { action } })
    const status = Option.getOrUndefined(answer)?.status
    server.history.push(`${action} ${status}`)
    server.expected = conclude(server, action, status)
  })

  const crash = Effect.fnUntraced(function* (server: Promised) {
    const answer = yield* send("POST", `/api/servers/${server.id}/commands`, {
      body: { commands: ["exit 7"] }
    })
    server.history.push(`crash ${Option.getOrUndefined(answer)?.status}`)
    if (Option.isSome(answer) && answer.value.status !== 204) return
    server.mayCrash = true
    server.expected = "any"
  })

  const remove = Effect.fnUntraced(function* (server: Promised) {
    server.deleted = "asked"
    const answer = Option.getOrUndefined(yield* send("DELETE", `/api/servers/${server.id}`))
    server.history.push(`delete ${answer?.status}`)
    server.expected = answer === undefined ? "any" : "gone"
    if (answer?.status === 200) server.deleted = "acknowledged"
  })

  const client = Effect.fnUntraced(function* (name: string, random: Random) {
    const own: Array<Promised> = []
    while (begun < total) {
      const what = random.below(10)
      const server = own[random.below(own.length)]
      if (server === undefined || what < 4) {
        begun += 1
        own.push(yield* create(`${name}-${own.length}`, random))
      } else if (server.expected === "gone") {
        // No other request is possible.
      } else if (what < 8) yield* power(server, random)
      else if (what < 9) yield* crash(server)
      else yield* remove(server)
    }
  })

  return { promised, lost: () => lost, surprises, client }
}
