import { createServer, request } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch, Option, Result, Scheduler, Tracer } from "effect"
import {
  type Creations,
  type DaemonServer,
  MOST_CREATIONS,
  type ServerSpec
} from "../../../../src/contract/domain/NodeMessages.ts"
import {
  type Daemon,
  type DaemonError,
  DaemonRefused,
  NodeUnreachable
} from "../../../../src/contract/nodeApi/Daemon.ts"
import { type CreationsOptions, makeCreations } from "../../../../src/controlPlane/nodes/remote/creations.ts"
import { eventually } from "../../../support/eventually.ts"
import { allocations, definition } from "../../../support/samples.ts"
import { FakeDaemon } from "../../servers/support/FakeDaemon.ts"
import { NODE, remote, serve, spec } from "../support/remoteDaemon.ts"

const SINGLE = "/api/servers"
const SEVERAL = "/api/creations"
/** Creations that are sent before others wait for a message. */
const AT_ONCE = 2

interface Call {
  readonly path: string
  readonly body: string
}

const decoded = ({ body }: Call): Creations => JSON.parse(body)
const sizes = (calls: ReadonlyArray<Call>) =>
  calls.filter(({ path }) => path === SEVERAL).map((call) => decoded(call).servers.length)
const count = (calls: ReadonlyArray<Call>, path: string) => calls.filter((call) => call.path === path).length

type Fate = "lost" | "silent" | { readonly answer: (body: string) => string }

/**
 * Passes requests on to a daemon and records them. `fate`: `lost` carries the request out and loses the answer; `silent`
 * never responds; `answer` changes the answer.
 */
const relay = (to: string, fate: (call: Call) => Fate | undefined = () => undefined) =>
  Effect.acquireRelease(
    Effect.callback<{
      readonly url: string
      readonly calls: ReadonlyArray<Call>
      readonly close: () => void
    }>((resume) => {
      const calls: Array<Call> = []
      const server = createServer((incoming, response) => {
        let body = ""
        incoming.setEncoding("utf8")
        incoming.on("data", (chunk: string) => {
          body += chunk
        })
        incoming.once("end", () => {
          const call = { path: incoming.url ?? "", body }
          calls.push(call)
          const what = fate(call)
          if (what === "silent") return
          const { headers, method } = incoming
          request(`${to}${call.path}`, { method, headers }, (answer) => {
            if (what === "lost") return incoming.socket.destroy()
            if (typeof what !== "object") {
              response.writeHead(answer.statusCode ?? 500, answer.headers)
              return answer.pipe(response)
            }
            let text = ""
            answer.setEncoding("utf8")
            answer.on("data", (chunk: string) => {
              text += chunk
            })
            answer.once("end", () => response.end(what.answer(text)))
          }).end(body)
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        const close = () => {
          server.close()
          server.closeAllConnections()
        }
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, calls, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )

const specs = (count: number, first = 0): ReadonlyArray<ServerSpec> =>
  Array.from({ length: count }, (_, n) => spec(`srv_${first + n}`))

/** A daemon that carries out no creation before `go`. */
const waitingDaemon = (create: Daemon["create"] = new FakeDaemon(NODE).daemon.create) => {
  const gate = Latch.makeUnsafe(false)
  const fake = new FakeDaemon(NODE)
  return {
    gate,
    daemon: { ...fake.daemon, create: (one: ServerSpec) => Effect.andThen(gate.await, create(one)) }
  }
}

const created = ({ id }: Pick<ServerSpec, "id">): DaemonServer => ({
  id,
  status: "installing",
  install: { phase: "installing" },
  unsent_reports: 0
})

/** Calls for one server that end when the test says so, and messages that succeed at once. */
const heldCalls = (options: Partial<CreationsOptions> = {}) => {
  const open: Array<() => void> = []
  const create = makeCreations({
    single: (one) =>
      Effect.callback<DaemonServer, DaemonError>((resume) => {
        open.push(() => resume(Effect.succeed(created(one))))
      }),
    together: ({ servers }) => Effect.succeed(servers.map((one) => Result.succeed(created(one)))),
    fork: Effect.runFork,
    ...options
  })
  const endAll = () => {
    for (const end of open.splice(0)) end()
  }
  return { create, endAll, open }
}

/** Creates servers concurrently: all of them wait before the first is created. */
const createAll = Effect.fnUntraced(function* (
  daemon: Daemon,
  gate: Latch.Latch,
  calls: ReadonlyArray<Call>,
  all: ReadonlyArray<ServerSpec>
) {
  const before = calls.length
  gate.closeUnsafe()
  const creating = yield* Effect.forkChild(
    Effect.forEach(all, (one) => Effect.result(daemon.create(one)), { concurrency: "unbounded" })
  )
  yield* eventually(
    () => calls.length - before,
    (sent) => sent >= Math.min(AT_ONCE, all.length)
  )
  gate.openUnsafe()
  return yield* Fiber.join(creating)
})

const idsOf = (results: ReadonlyArray<Result.Result<{ readonly id: string }, unknown>>) =>
  results.flatMap((result) => (Result.isSuccess(result) ? result.success.id : []))

describe("spec 9.4: POST /api/creations", () => {
  it.live(
    "creations that wait while messages are under way share the next ones, and each has its answer",
    () =>
      Effect.gen(function* () {
        const { daemon: served, gate } = waitingDaemon()
        const { url, calls } = yield* relay((yield* serve(served)).url)
        const daemon = yield* remote(() => ({ url, token: "secret" }))
        const all = specs(20)
        const results = yield* createAll(daemon, gate, calls, all)
        assert.deepStrictEqual(
          idsOf(results),
          all.map(({ id }) => id)
        )
        assert.deepStrictEqual([count(calls, SINGLE), sizes(calls)], [AT_ONCE, [18]])
        const [message] = calls.filter(({ path }) => path === SEVERAL)
        assert.strictEqual(
          message && decoded(message).definitions.length,
          1,
          "equal definitions are sent once"
        )
      }).pipe(Effect.scoped)
  )

  it.live("a single creation uses the route for one server", () =>
    Effect.gen(function* () {
      const { url, calls } = yield* relay((yield* serve(new FakeDaemon(NODE).daemon)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      yield* daemon.create(spec("srv_1"))
      assert.deepStrictEqual(
        calls.map(({ path }) => path),
        [SINGLE]
      )
    }).pipe(Effect.scoped)
  )

  it.live("a server that fails among others fails as it would alone, and the others are created", () =>
    Effect.gen(function* () {
      const statuses = [404, 409, 422, 500] as const
      const failures = new Map<string, DaemonRefused | NodeUnreachable>(
        statuses.map((status, n) => [
          `srv_${4 + 3 * n}`,
          new DaemonRefused({ status, detail: `detail of ${status}`, hint: `hint of ${status}` })
        ])
      )
      failures.set("srv_18", new NodeUnreachable({ node_id: NODE }))
      const fake = new FakeDaemon(NODE)
      const { daemon: served, gate } = waitingDaemon((one) => {
        const failure = failures.get(one.id)
        return failure === undefined ? fake.daemon.create(one) : Effect.fail(failure)
      })
      const { url, calls } = yield* relay((yield* serve(served)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const all = specs(20)
      const results = yield* createAll(daemon, gate, calls, all)
      assert.deepStrictEqual(sizes(calls), [18])
      for (const [at, { id }] of all.entries()) {
        const result = results[at]
        const failure = failures.get(id)
        if (failure === undefined) assert.strictEqual(result?._tag, "Success", id)
        else if (failure._tag === "DaemonRefused") assert.deepStrictEqual(result, Result.fail(failure))
        else assert.strictEqual(result?._tag === "Failure" && result.failure._tag, "NodeUnreachable")
      }
    }).pipe(Effect.scoped)
  )

  it.live("a message whose answer was lost is repeated, and makes each server once", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { daemon: served, gate } = waitingDaemon(fake.daemon.create)
      let lost = 0
      const { url, calls } = yield* relay((yield* serve(served)).url, ({ path }) =>
        path === SEVERAL && lost++ === 0 ? "lost" : undefined
      )
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const all = specs(10)
      const results = yield* createAll(daemon, gate, calls, all)
      assert.strictEqual(idsOf(results).length, 10)
      assert.deepStrictEqual([sizes(calls), fake.instances.size], [[8, 8], 10])
    }).pipe(Effect.scoped)
  )

  it.live("a message without a response fails each of its servers, which are sent alone the next time", () =>
    Effect.gen(function* () {
      const { daemon: served, gate } = waitingDaemon()
      const { url, calls } = yield* relay((yield* serve(served)).url, ({ path }) =>
        path === SEVERAL ? "silent" : undefined
      )
      const daemon = yield* remote(() => ({ url, token: "secret" }), "400 millis")
      const all = specs(10)
      const results = yield* createAll(daemon, gate, calls, all)
      assert.deepStrictEqual(
        results.map((result) => (Result.isFailure(result) ? result.failure._tag : "created")),
        all.map((_, n) => (n < AT_ONCE ? "created" : "NodeUnreachable"))
      )
      const again = yield* createAll(daemon, gate, calls, all.slice(AT_ONCE))
      assert.deepStrictEqual([idsOf(again).length, sizes(calls)], [8, [8]])
    }).pipe(Effect.scoped)
  )

  interface Outcomes {
    readonly outcomes: ReadonlyArray<{ readonly server?: DaemonServer }>
  }
  const changed = (change: (outcomes: Outcomes["outcomes"]) => unknown) => (body: string) => {
    const { outcomes }: Outcomes = JSON.parse(body)
    return JSON.stringify({ outcomes: change(outcomes) })
  }
  /** Answers for eight servers, and how many have an outcome of their own. */
  const answers: Readonly<Record<string, readonly [(body: string) => string, number]>> = {
    "fewer servers": [changed((all) => all.slice(0, 3)), 3],
    "no server": [changed(() => []), 0],
    "more servers": [changed((all) => [...all, ...all]), 8],
    "other servers": [changed((all) => all.toReversed()), 0]
  }
  /** Creates servers, of which eight share a message that gets this answer. */
  const answered = Effect.fnUntraced(function* (answer: (body: string) => string) {
    const { daemon: served, gate } = waitingDaemon()
    const { url, calls } = yield* relay((yield* serve(served)).url, ({ path }) =>
      path === SEVERAL ? { answer } : undefined
    )
    const daemon = yield* remote(() => ({ url, token: "secret" }))
    const all = specs(AT_ONCE + 8)
    const results = yield* createAll(daemon, gate, calls, all)
    return { all, calls, daemon, results }
  })
  it.live.each(Object.entries(answers))(
    "if the answer is for %s, a server without its own outcome has failed, and its next call creates it",
    ([, [answer, expected]]) =>
      Effect.gen(function* () {
        const { all, daemon, results } = yield* answered(answer)
        assert.strictEqual(idsOf(results).length, AT_ONCE + expected)
        for (const [at, { id }] of all.entries()) {
          const result = results[at]
          if (result?._tag === "Success") assert.strictEqual(result.success.id, id)
          else assert.strictEqual(result?.failure instanceof DaemonRefused && result.failure.status, 500)
        }
        for (const one of all) assert.strictEqual((yield* daemon.create(one)).id, one.id)
      }).pipe(Effect.scoped)
  )

  const unreadable: Readonly<Record<string, (body: string) => string>> = {
    "with an outcome of neither kind": changed((all) => [{}, ...all.slice(1)]),
    "that is cut off": (body) => body.slice(0, -20),
    "that is no JSON": () => "<html>",
    "that is empty": () => ""
  }
  it.live.each(Object.entries(unreadable))(
    "after an answer %s, each server gets a call of its own",
    ([, answer]) =>
      Effect.gen(function* () {
        const { all, calls, results } = yield* answered(answer)
        assert.deepStrictEqual(
          idsOf(results),
          all.map(({ id }) => id)
        )
        assert.deepStrictEqual([sizes(calls), count(calls, SINGLE)], [[8], all.length])
      }).pipe(Effect.scoped)
  )

  it.live("a server that makes the daemon refuse the message does not fail the others", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { daemon: served, gate } = waitingDaemon((one) =>
        one.id === "srv_7" ? Effect.die(new Error("a mistake")) : fake.daemon.create(one)
      )
      const { url, calls } = yield* relay((yield* serve(served)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const results = yield* createAll(daemon, gate, calls, specs(10))
      assert.deepStrictEqual([idsOf(results).length, fake.instances.size], [9, 9])
      const failed = results[7]
      assert.isTrue(failed !== undefined && Result.isFailure(failed))
      assert.deepInclude(failed?._tag === "Failure" && failed.failure, { _tag: "DaemonRefused", status: 500 })
    }).pipe(Effect.scoped)
  )

  it.live("a message has 32 servers and 1 MiB of definitions at most; a larger definition has its own", () =>
    Effect.gen(function* () {
      const { daemon: served, gate } = waitingDaemon()
      const { url, calls } = yield* relay((yield* serve(served)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      yield* createAll(daemon, gate, calls, specs(AT_ONCE + 40))
      assert.strictEqual(
        sizes(calls).reduce((sum, size) => sum + size, 0),
        40
      )
      assert.isAtMost(Math.max(...sizes(calls)), MOST_CREATIONS)
      const before = calls.length
      const large = specs(AT_ONCE + 6, 100).map((one, n) => ({
        ...one,
        definition: { ...definition(), env: { LARGE: `${n}`.repeat(400 * 1024) } }
      }))
      const results = yield* createAll(daemon, gate, calls, large)
      assert.strictEqual(idsOf(results).length, large.length)
      assert.deepStrictEqual(sizes(calls.slice(before)), [2, 2, 2])
    }).pipe(Effect.scoped)
  )

  it.live("a daemon refuses more than 32 servers, and servers without a definition", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { url } = yield* serve(fake.daemon)
      const send = (body: unknown) =>
        Effect.map(
          Effect.promise(() =>
            fetch(`${url}${SEVERAL}`, {
              method: "POST",
              headers: { authorization: "Bearer secret", "content-type": "application/json" },
              body: JSON.stringify(body)
            })
          ),
          ({ status }) => status
        )
      const server = (n: number, place: number) => ({
        id: `srv_${n}`,
        allocations: allocations(25565),
        definition: place
      })
      const many = Array.from({ length: MOST_CREATIONS + 1 }, (_, n) => server(n, 0))
      assert.strictEqual(yield* send({ definitions: [definition()], servers: many }), 422)
      assert.strictEqual(
        yield* send({ definitions: [definition()], servers: [server(1, 0), server(2, 1)] }),
        422
      )
      assert.strictEqual(fake.instances.size, 0)
      assert.strictEqual(yield* send({ definitions: [definition()], servers: [server(1, 0)] }), 200)
    }).pipe(Effect.scoped)
  )

  it.live("an interrupted creation that waits is not sent", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { daemon: served, gate } = waitingDaemon(fake.daemon.create)
      const { url, calls } = yield* relay((yield* serve(served)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const begun = yield* Effect.forEach(specs(5), (one) => Effect.forkChild(daemon.create(one)))
      yield* eventually(
        () => calls.length,
        (sent) => sent === AT_ONCE
      )
      const last = begun.at(-1)
      if (last !== undefined) yield* Fiber.interrupt(last)
      gate.openUnsafe()
      yield* Effect.forEach(begun.slice(0, -1), Fiber.join)
      assert.strictEqual(fake.instances.size, 4)
    }).pipe(Effect.scoped)
  )

  it.live("creations that are interrupted during their calls do not hold up later ones", () =>
    Effect.gen(function* () {
      const { daemon: served, gate } = waitingDaemon()
      const { url, calls } = yield* relay((yield* serve(served)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const begun = yield* Effect.forEach(specs(AT_ONCE), (one) => Effect.forkChild(daemon.create(one)))
      yield* eventually(
        () => calls.length,
        (sent) => sent === AT_ONCE
      )
      const later = yield* Effect.forkChild(daemon.create(spec("srv_9")))
      yield* Effect.forEach(begun, Fiber.interrupt)
      gate.openUnsafe()
      assert.strictEqual((yield* Fiber.join(later)).id, "srv_9")
    }).pipe(Effect.scoped)
  )

  it.live("each server of a message continues the trace of its creation", () =>
    Effect.gen(function* () {
      const traces = new Map<string, string | undefined>()
      const fake = new FakeDaemon(NODE)
      const { daemon: served, gate } = waitingDaemon((one) =>
        Effect.flatMap(Effect.option(Effect.currentParentSpan), (span) => {
          traces.set(one.id, Option.getOrUndefined(span)?.traceId)
          return fake.daemon.create(one)
        })
      )
      const { url, calls } = yield* relay((yield* serve(served)).url)
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const own = new Map<string, string>()
      const traced = {
        ...daemon,
        create: (one: ServerSpec) =>
          Effect.flatMap(Effect.orDie(Effect.currentSpan), ({ traceId }) => {
            own.set(one.id, traceId)
            return daemon.create(one)
          }).pipe(Effect.withSpan("creation", { root: true }))
      }
      yield* createAll(traced, gate, calls, specs(6)).pipe(
        Effect.withTracer(Tracer.make({ span: (options) => new Tracer.NativeSpan(options) }))
      )
      assert.deepStrictEqual(sizes(calls), [4])
      assert.strictEqual(new Set(own.values()).size, 6)
      for (const { id } of specs(4, AT_ONCE)) assert.strictEqual(traces.get(id), own.get(id))
    }).pipe(Effect.scoped)
  )

  it.live("a creation that yields while the messages end is sent, wherever it yields", () =>
    Effect.gen(function* () {
      // With less, a fiber does not advance.
      const budgets = Array.from({ length: 40 }, (_, n) => n + 3)
      const cases = yield* Effect.forEach(
        budgets,
        Effect.fnUntraced(function* (budget) {
          const calls = heldCalls()
          yield* Effect.forEach(specs(AT_ONCE), (one) =>
            Effect.forkChild(calls.create(one), { startImmediately: true })
          )
          const last = yield* calls
            .create(spec("srv_9"))
            .pipe(
              Effect.provideService(Scheduler.MaxOpsBeforeYield, budget),
              Effect.forkChild({ startImmediately: true })
            )
          calls.endAll()
          return { budget, calls, last }
        })
      )
      yield* eventually(
        () => {
          for (const { calls } of cases) calls.endAll()
          return cases.filter(({ last }) => last.pollUnsafe() === undefined).map(({ budget }) => budget)
        },
        (stuck) => stuck.length === 0
      )
    })
  )

  it.live("1,000 servers without a response are sent alone the next time, those that were sent last", () =>
    Effect.gen(function* () {
      const together: Array<ReadonlyArray<string>> = []
      const { create, endAll, open } = heldCalls({
        together: ({ servers }) =>
          Effect.suspend(() => {
            together.push(servers.map(({ id }) => id))
            return Effect.fail(new NodeUnreachable({ node_id: NODE }))
          })
      })
      const sendAll = Effect.fnUntraced(function* (all: ReadonlyArray<ServerSpec>) {
        const begun = yield* Effect.forEach(all, (one) =>
          Effect.forkChild(Effect.exit(create(one)), { startImmediately: true })
        )
        yield* eventually(() => {
          endAll()
          return begun.every((fiber) => fiber.pollUnsafe() !== undefined)
        })
      })
      const all = specs(AT_ONCE + 1001)
      yield* sendAll(all)
      assert.strictEqual(together.flat().length, 1001)
      together.length = 0
      yield* Effect.forEach(specs(AT_ONCE, 5000), (one) =>
        Effect.forkChild(create(one), { startImmediately: true })
      )
      assert.strictEqual(open.length, AT_ONCE)
      yield* sendAll([...all.slice(AT_ONCE, AT_ONCE + 2), spec("srv_9000")])
      assert.deepStrictEqual(together, [["srv_2", "srv_9000"]])
    })
  )
})
