import { appendFileSync, mkdirSync, writeFileSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startChild } from "../child.ts"
import { eventually } from "../eventually.ts"
import {
  during,
  smallDisk,
  smallDiskNote,
  tcpProxy,
  wallClock,
  wallClockNote,
  withSmallDisk,
  withWallClock
} from "./index.ts"

/** Echoes every byte. */
const echo = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
    const sockets = new Set<Socket>()
    const server = createServer((socket) => {
      sockets.add(socket)
      socket.on("error", () => {})
      socket.pipe(socket)
    })
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      resume(
        Effect.succeed({
          port: typeof address === "object" && address !== null ? address.port : 0,
          close: () => {
            for (const socket of sockets) socket.destroy()
            server.close()
          }
        })
      )
    })
  }),
  ({ close }) => Effect.sync(close)
)

/** A connection, the bytes it has received, and how it ended. */
const client = (port: number) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => connect(port, "127.0.0.1")),
      (socket) => Effect.sync(() => socket.destroy())
    ),
    (socket) => {
      let received = ""
      let end: string | undefined
      socket.on("data", (chunk) => {
        received += chunk.toString()
      })
      socket.on("error", (error: NodeJS.ErrnoException) => {
        end = error.code
      })
      socket.on("close", () => {
        end ??= "closed"
      })
      const state = () => ({ received, end })
      return {
        state: Effect.sync(state),
        sends: (text: string) => Effect.sync(() => void socket.write(text)),
        receives: (text: string) => eventually(Effect.sync(state), (now) => now.received === text),
        ends: (how: string) => eventually(Effect.sync(state), (now) => now.end === how)
      }
    }
  )

describe("test faults: the connection proxy", () => {
  it.live("drop resets present and new connections; after heal, new connections work", () =>
    Effect.gen(function* () {
      const proxy = yield* tcpProxy((yield* echo).port)
      const before = yield* client(proxy.port)
      yield* before.sends("one")
      yield* before.receives("one")
      yield* during(
        proxy.dropped,
        Effect.gen(function* () {
          yield* before.ends("ECONNRESET")
          const meanwhile = yield* client(proxy.port)
          yield* meanwhile.ends("ECONNRESET")
        })
      )
      const after = yield* client(proxy.port)
      yield* after.sends("two")
      yield* after.receives("two")
    }).pipe(Effect.scoped)
  )

  it.live("swallow holds all bytes and ends no connection; heal resets the connections that lost bytes", () =>
    Effect.gen(function* () {
      const proxy = yield* tcpProxy((yield* echo).port)
      const [sender, receiver] = [yield* client(proxy.port), yield* client(proxy.port)]
      for (const one of [sender, receiver]) {
        yield* one.sends("one")
        yield* one.receives("one")
      }
      const made = yield* during(
        proxy.swallowed,
        Effect.gen(function* () {
          const meanwhile = yield* client(proxy.port)
          yield* meanwhile.sends("lost")
          yield* sender.sends("lost")
          // All sockets are in this process, so bytes sent earlier have been read by now.
          const other = yield* client((yield* echo).port)
          yield* other.sends("seen")
          yield* other.receives("seen")
          for (const one of [meanwhile, sender]) assert.isUndefined((yield* one.state).end)
          assert.strictEqual((yield* sender.state).received, "one")
          return meanwhile
        })
      )
      yield* sender.ends("ECONNRESET")
      yield* made.ends("ECONNRESET")
      yield* receiver.sends("two")
      yield* receiver.receives("onetwo")
    }).pipe(Effect.scoped)
  )

  it.live("delay delivers every byte late and in order; cut holds back the chunk", () =>
    Effect.gen(function* () {
      const proxy = yield* tcpProxy((yield* echo).port)
      const one = yield* client(proxy.port)
      yield* during(
        proxy.delayed(30),
        Effect.gen(function* () {
          yield* one.sends("a")
          yield* one.sends("b")
        })
      )
      yield* one.sends("c")
      yield* one.receives("abc")
      yield* proxy.cutAt((chunk) => chunk.includes("end"))
      yield* one.sends("end")
      yield* one.ends("ECONNRESET")
      assert.isTrue(proxy.hasCut())
      assert.strictEqual((yield* one.state).received, "abc")
    }).pipe(Effect.scoped)
  )

  it.live("through() redirects a URL through the proxy and keeps the rest of the URL", () =>
    Effect.gen(function* () {
      const proxy = yield* tcpProxy(5432)
      assert.strictEqual(
        proxy.through("postgres://u:p%3A@127.0.0.1:5432/db?sslmode=disable"),
        `postgres://u:p%3A@127.0.0.1:${proxy.port}/db?sslmode=disable`
      )
      assert.strictEqual(proxy.through("http://127.0.0.1:80"), `http://127.0.0.1:${proxy.port}`)
    }).pipe(Effect.scoped)
  )
})

describe.runIf(withSmallDisk)(`test faults: the small disk${smallDiskNote}`, () => {
  it.live("fill leaves no free byte, and free returns all of the space", () =>
    Effect.gen(function* () {
      const { full, path } = yield* smallDisk(4)
      mkdirSync(path)
      const append = () => appendFileSync(join(path, "file"), Buffer.alloc(4096))
      append()
      yield* during(
        full,
        Effect.sync(() => {
          assert.throws(append, /ENOSPC/)
          assert.throws(() => writeFileSync(join(path, "other"), "x"), /ENOSPC/)
        })
      )
      append()
    }).pipe(Effect.scoped)
  )
})

describe.runIf(withWallClock)(`test faults: the wall clock${wallClockNote}`, () => {
  it.live("the wall clock of a running process jumps; its monotonic clock does not", () =>
    Effect.gen(function* () {
      const clock = yield* wallClock
      const program = `setInterval(() => console.log(
        Math.round((Date.now() - performance.timeOrigin - performance.now()) / 60_000) || 0
      ), 20)`
      const child = yield* startChild([process.execPath, "-e", program], { cwd: "/", env: clock.env })
      const clockIsAhead = (minutes: number) =>
        eventually(
          Effect.sync(() => child.stdout().split("\n").at(-2)),
          (last) => last === String(minutes)
        )
      yield* clockIsAhead(0)
      yield* during(clock.jumped(7_200_000), clockIsAhead(120))
      yield* clockIsAhead(0)
      yield* during(clock.jumped(-7_200_000), clockIsAhead(-120))
    }).pipe(Effect.scoped)
  )
})
