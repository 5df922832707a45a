import {
  appendFileSync,
  existsSync,
  linkSync,
  readFileSync,
  renameSync,
  statSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Stream } from "effect"
import { END, makeConsoleLog } from "../../../src/daemon/console/ConsoleLog.ts"
import { CONSOLE_BOUND } from "../../../src/daemon/console/consoleFiles.ts"
import { type Line, makeLineIndex } from "../../../src/daemon/console/lines.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { harness } from "../support.ts"

const MIB = 1024 * 1024

const collecting = () => {
  const lines: Array<string> = []
  const onLines = (more: ReadonlyArray<Line>) =>
    Effect.sync(() => void lines.push(...more.map(({ text }) => text)))
  return { lines, listener: { wanted: () => true, onLines } }
}

describe("spec 3.10: logs and console", () => {
  it.live("pages count from the newest line; the newest is last; ANSI sequences are removed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      assert.deepStrictEqual(yield* console.page({ page: 1, per_page: 10 }), { items: [], total: 0 })
      appendFileSync(file, "\u001b[31mone\u001b[0m\r\ntwo\n\nfour\nunfinished")
      assert.deepStrictEqual(yield* console.page({ page: 1, per_page: 2 }), {
        items: ["four", "unfinished"],
        total: 5
      })
      assert.deepStrictEqual((yield* console.page({ page: 2, per_page: 2 })).items, ["two", ""])
      assert.deepStrictEqual((yield* console.page({ page: 3, per_page: 2 })).items, ["one"])
      assert.deepStrictEqual((yield* console.page({ page: 4, per_page: 2 })).items, [])
      appendFileSync(file, " now\nsix\n")
      assert.deepStrictEqual(yield* console.page({ page: 1, per_page: 2 }), {
        items: ["unfinished now", "six"],
        total: 6
      })
    }).pipe(Effect.scoped)
  )

  it.live("a follower gets long lines in pieces, broken UTF-8 replaced, and a last line without an end", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const { lines, listener } = collecting()
      yield* console.seek(yield* console.begin)
      appendFileSync(file, "a")
      yield* console.step(listener)
      assert.deepStrictEqual(lines, [])
      appendFileSync(file, Buffer.from([0x62, 0xff, 0x0a]))
      appendFileSync(file, `${"ä".repeat(5000)}\nlast`)
      yield* console.step(listener)
      yield* console.finish(listener)
      assert.deepStrictEqual(lines, ["ab\ufffd", "ä".repeat(4096), "ä".repeat(904), "last"])
      assert.strictEqual(
        yield* console.begin,
        statSync(file).size,
        "an open line is ended before the next run"
      )
      assert.isTrue(readFileSync(file, "utf8").endsWith("last\n"))
    }).pipe(Effect.scoped)
  )

  it.live("a flood of short lines is delivered in pieces; without a follower, its open line stays", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const sizes: Array<number> = []
      const lines: Array<string> = []
      let wanted = true
      const listener = {
        wanted: () => wanted,
        onLines: (more: ReadonlyArray<Line>) =>
          Effect.sync(() => {
            sizes.push(more.length)
            lines.push(more.at(-1)?.text ?? "")
          })
      }
      yield* console.seek(yield* console.begin)
      appendFileSync(file, "\n".repeat(100_000))
      yield* console.finish(listener)
      assert.isAtMost(Math.max(...sizes), 16 * 1024)
      assert.strictEqual(
        sizes.reduce((sum, size) => sum + size, 0),
        100_000
      )
      wanted = false
      appendFileSync(file, `${"x\n".repeat(100_000)}half `)
      while (yield* console.step(listener));
      wanted = true
      appendFileSync(file, "a line\n")
      yield* console.finish(listener)
      assert.strictEqual(lines.at(-1), "half a line")
      assert.strictEqual((yield* console.page({ page: 1, per_page: 1 })).total, 200_001)
    }).pipe(Effect.scoped)
  )

  it.live("after silence, a follower gets a line without an end, and the whole line once it has grown", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const { lines, listener } = collecting()
      yield* console.seek(yield* console.begin)
      const print = Effect.fnUntraced(function* (text: string) {
        appendFileSync(file, text)
        yield* console.step(listener)
        assert.isTrue(console.hasOpenLine())
        assert.isFalse(yield* console.step(listener, true))
        assert.isFalse(console.hasOpenLine())
        return lines.splice(0)
      })
      assert.deepStrictEqual(yield* print("Loading\nReady> "), ["Loading", "Ready> "])
      assert.deepStrictEqual(yield* print("stop\nReady> "), ["Ready> stop", "Ready> "])
      assert.deepStrictEqual(yield* print("\n\r10 %"), ["10 %"], "the end adds nothing to the prompt")
      assert.deepStrictEqual(yield* print("\r20 %"), ["20 %"])
      yield* console.finish(listener)
      assert.deepStrictEqual(lines, [])
      assert.deepStrictEqual((yield* console.page({ page: 1, per_page: 3 })).items, [
        "Ready> stop",
        "Ready> ",
        "20 %"
      ])
    }).pipe(Effect.scoped)
  )

  it.live("a large file is cut and its end kept; followers continue", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const { lines, listener } = collecting()
      yield* console.seek(yield* console.begin)
      const block = Array.from({ length: 10_000 }, (_, i) => `line ${String(i).padStart(90, "0")}\n`).join("")
      for (let round = 0; round < 10; round++) {
        appendFileSync(file, block)
        while (yield* console.step(listener)) yield* Effect.yieldNow
      }
      yield* console.step(listener)
      assert.isBelow(statSync(file).size, 8 * 1024 * 1024)
      assert.isTrue(existsSync(`${file}.1`))
      assert.strictEqual(lines.length, 100_000)
      const before = yield* console.page({ page: 1, per_page: 3 })
      appendFileSync(file, "after\n")
      yield* console.step(listener)
      assert.strictEqual(lines.at(-1), "after")
      const page = yield* console.page({ page: 1, per_page: 3 })
      assert.deepStrictEqual(page.items, [...before.items.slice(1), "after"])
      assert.strictEqual(page.total, before.total + 1)
      truncateSync(file, 0)
      appendFileSync(file, "next\n")
      yield* console.step(listener)
      assert.strictEqual(lines.at(-1), "next")
    }).pipe(Effect.scoped)
  )

  it.live("a file that another process replaces is followed without losing lines", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const { lines, listener } = collecting()
      yield* console.seek(yield* console.begin)
      appendFileSync(file, "one\ntw")
      while (yield* console.step(listener)) yield* Effect.yieldNow
      assert.deepStrictEqual((yield* console.page({ page: 1, per_page: 9 })).items, ["one", "tw"])
      appendFileSync(file, "o\nthr")
      renameSync(file, `${file}.1`)
      writeFileSync(file, "ee\nfour\n")
      while (yield* console.step(listener)) yield* Effect.yieldNow
      assert.deepStrictEqual(lines, ["one", "two", "three", "four"])
      const page = yield* console.page({ page: 1, per_page: 9 })
      assert.deepStrictEqual(page, { items: ["one", "two", "thr", "ee", "four"], total: 5 })
      renameSync(file, `${file}.1`)
      assert.isFalse(yield* console.step(listener), "the new file does not exist yet")
      writeFileSync(file, "five\n")
      while (yield* console.step(listener)) yield* Effect.yieldNow
      assert.strictEqual(lines.at(-1), "five")
    }).pipe(Effect.scoped)
  )

  it.live.each([
    ["within a line is not the beginning of one", 64],
    ["at the beginning of a line is one", 128]
  ] as const)("spec 3.10: output after a gap that ends %s", ([, last]) =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const lines: Array<Line> = []
      const listener = {
        wanted: () => true,
        onLines: (some: ReadonlyArray<Line>) => Effect.sync(() => void lines.push(...some))
      }
      const line = (bytes: number) => `${"x".repeat(bytes - 1)}\n`
      yield* console.seek(yield* console.begin)
      appendFileSync(file, line(128))
      while (yield* console.step(listener)) yield* Effect.yieldNow
      // The gap ends a power of two before the end.
      appendFileSync(file, line(128).repeat((9 * MIB) / 128) + line(last))
      while (yield* console.step(listener)) yield* Effect.yieldNow
      const gap = lines.findIndex(({ text }) => /^\[\d+ bytes of output were skipped here\]$/.test(text))
      assert.isAbove(gap, 0)
      const isWithin = last === 64
      assert.deepInclude(lines[gap + 1], { continues: isWithin, text: "x".repeat(isWithin ? 63 : 127) })
      assert.deepInclude(lines[gap + 2], { continues: false, text: "x".repeat(127) })
    }).pipe(Effect.scoped)
  )

  it.live("a follower learns of output that was replaced before it was read", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const console = makeConsoleLog(folder)
      const file = join(folder, "console.log")
      const { lines, listener } = collecting()
      let lost = 0
      const onLost = Effect.sync(() => void lost++)
      yield* console.seek(yield* console.begin)
      // Another name keeps the inode of the first file from the next one.
      linkSync(file, `${file}.0`)
      for (const text of ["ready\n", "flood\n"]) {
        appendFileSync(file, text)
        renameSync(file, `${file}.1`)
      }
      writeFileSync(file, "more\n")
      while (yield* console.step({ ...listener, onLost })) yield* Effect.yieldNow
      assert.deepStrictEqual({ lines, lost }, { lines: ["more"], lost: 1 })
    }).pipe(Effect.scoped)
  )

  it.live(
    "lines that another process cut are reported as omitted at their position; a new run is read from its start",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const file = join(folder, "console.log")
        writeFileSync(`${file}.1`, "earlier run\nready\n")
        writeFileSync(file, "later\n")
        writeFileSync(join(folder, "console.cut"), "12 700\n")
        const console = makeConsoleLog(folder)
        const page = (number: number, per_page: number) =>
          Effect.map(console.page({ page: number, per_page }), ({ items }) => items)
        const note = "[700 bytes of output were left out here]"
        assert.deepStrictEqual(yield* page(1, 9), [note, "earlier run", "ready", "later"])
        assert.deepStrictEqual(yield* page(1, 2), ["ready", "later"])
        assert.deepStrictEqual(yield* page(2, 2), [note, "earlier run"])
        assert.deepStrictEqual(yield* page(2, 3), [note])
        const { lines, listener } = collecting()
        assert.isFalse(yield* console.seek(5000))
        yield* console.finish(listener)
        assert.deepStrictEqual(lines.splice(0), ["ready", "later"])
        assert.isFalse(yield* console.seek(END))
        yield* console.finish(listener)
        assert.deepStrictEqual(lines, [])
        writeFileSync(join(folder, "console.cut"), "gone 800\n")
        assert.isTrue(yield* console.seek(5000), "what the run began with has gone")
        yield* console.finish(listener)
        assert.deepStrictEqual(lines.splice(0), ["earlier run", "ready", "later"])
        yield* console.seek(yield* console.begin)
        appendFileSync(file, "next run\n")
        yield* console.finish(listener)
        assert.deepStrictEqual(lines, ["next run"])
        const last = ["earlier run", "ready", "later", "next run"]
        assert.deepStrictEqual(yield* page(1, 9), ["[800 bytes of output were left out here]", ...last])
      }).pipe(Effect.scoped)
  )

  it.live("the first line counts the lines that all cuts have removed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = join(folder, "console.log")
      writeFileSync(`${file}.1`, "x".repeat(100))
      writeFileSync(file, `${"0123456\n".repeat(MIB)}after\n`)
      writeFileSync(join(folder, "console.cut"), "gone 1000\n")
      const console = makeConsoleLog(folder)
      const { listener } = collecting()
      const first = Effect.gen(function* () {
        const { total } = yield* console.page({ page: 1, per_page: 1 })
        return (yield* console.page({ page: total, per_page: 1 })).items
      })
      /** The omitted bytes are all bytes minus those that are left. */
      const missing = (all: number) => {
        const left = statSync(file).size + statSync(`${file}.1`).size
        assert.isAtMost(left, 4 * MIB + 100)
        return [`[${all - left} bytes of output were left out here]`]
      }
      let all = 1000 + 100 + 8 * MIB + "after\n".length
      yield* console.seek(END)
      yield* console.step(listener)
      assert.strictEqual(statSync(file).size, 0)
      assert.deepStrictEqual(yield* first, missing(all))

      for (let round = 0; round < 2; round++) {
        appendFileSync(file, `${"another\n".repeat(MIB)}more\n`)
        all += 8 * MIB + "more\n".length
        yield* console.seek(END)
        yield* console.step(listener)
        assert.strictEqual(statSync(file).size, 0)
        assert.deepStrictEqual(yield* first, missing(all))
      }

      const again = makeConsoleLog(folder)
      yield* again.seek(yield* again.begin)
      appendFileSync(file, "next run\n")
      const { lines, listener: next } = collecting()
      yield* again.finish(next)
      assert.deepStrictEqual(lines, ["next run"])
      assert.deepStrictEqual(yield* first, missing(all + "next run\n".length))
    }).pipe(Effect.scoped)
  )

  it.live("any page of a long file equals the same page of all its lines", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = join(folder, "x.log")
      const all = Array.from({ length: 3000 }, (_, i) => "x".repeat((i * 7919) % 700) + i)
      appendFileSync(file, `${all.join("\n")}\n`)
      const index = makeLineIndex(file)
      assert.strictEqual(yield* index.total, 3000)
      for (const from of [0, 1, 255, 256, 257, 1000, 2990]) {
        const lines = yield* index.read(from, from + 10)
        assert.deepStrictEqual(
          lines.map(({ text }) => text),
          all.slice(from, from + 10)
        )
      }
    }).pipe(Effect.scoped)
  )

  it.live("a count of many empty lines that was interrupted goes on where it was, and is right", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const file = join(folder, "x.log")
      const total = 4 * MIB
      writeFileSync(file, "\n".repeat(total))
      const index = makeLineIndex(file)
      const turn = Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))
      let interrupted = 0
      // Each attempt has more turns of the event loop than the one before.
      for (let turns = 1; ; turns++) {
        const counting = yield* Effect.forkChild(index.total)
        for (let n = 0; n < turns; n++) yield* turn
        yield* Fiber.interrupt(counting)
        const exit = yield* Fiber.await(counting)
        if (Exit.isSuccess(exit)) {
          assert.strictEqual(exit.value, total)
          break
        }
        interrupted++
      }
      assert.isAbove(interrupted, 3)
      assert.strictEqual((yield* index.read(total - 10, total)).at(-1)?.at, total - 1)
    }).pipe(Effect.scoped)
  )

  it.live("a prompt is the online signal, and its followers see it", () =>
    Effect.gen(function* () {
      const { daemon, installed, lastStatus } = yield* harness()
      const invocation = `sh -c "printf 'Loading...\\nReady on port'; exec cat"`
      const id = yield* installed({ process: { invocation, online_signal: "Ready on port" } })
      const lines = yield* daemon.console(id)
      yield* daemon.power(id, "start", 30)
      yield* until("running", () => lastStatus(id) === "running")
      const seen = yield* Stream.runCollect(Stream.take(lines, 2))
      assert.deepStrictEqual([...seen], ["Loading...", "Ready on port"])
      const { items } = yield* daemon.logs(id, { page: 1, per_page: 2 })
      assert.deepStrictEqual(items, ["Loading...", "Ready on port"])
    }).pipe(Effect.scoped)
  )

  it.live("a signal that is found in the output of a killed start is not reported", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed, lastStatus, statuses } = yield* harness()
      const invocation = `sh -c "while :; do printf '\\rR'; done"`
      const id = yield* installed({
        process: { invocation, online_signal: "R", start_timeout: 0.5 }
      })
      yield* daemon.power(id, "start", 30)
      yield* until("offline", () => lastStatus(id) === "offline" && crashes(id).length === 1)
      assert.strictEqual(crashes(id)[0]?.reason, "start timed out")
      assert.notInclude(statuses(id), "running")
      const { items } = yield* daemon.logs(id, { page: 1, per_page: 9 })
      assert.strictEqual(items[0], "R")
    }).pipe(Effect.scoped)
  )

  it.live("a flood of output is bounded, and the server can still be stopped", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed, lastStatus } = yield* harness()
      const line = "0123456789"
      const id = yield* installed({
        process: { invocation: `sh -c 'echo ready; exec yes ${line}'`, stop_command: "^SIGTERM" }
      })
      const dir = join(dataDir, "servers", id)
      // Output of earlier runs up to the limit.
      writeFileSync(join(dir, "console.log"), `${line}\n`.repeat(Math.ceil((8 * MIB) / (line.length + 1))))
      const lines = yield* daemon.console(id)
      yield* daemon.power(id, "start", 30)
      assert.include(yield* Stream.runCollect(Stream.take(lines, 2000)), line)
      yield* until("it is cut", () => existsSync(join(dir, "console.log.1")))
      assert.isAtMost(statSync(join(dir, "console.log.1")).size, CONSOLE_BOUND)
      yield* until("running", () => lastStatus(id) === "running")
      yield* daemon.power(id, "stop", 10)
      yield* until("offline", () => lastStatus(id) === "offline")
      const { items } = yield* daemon.logs(id, { page: 1, per_page: 100 })
      assert.match(items.at(-1) ?? "", /^\[stopped as requested: /)
      // The relay may still write what the server printed before.
      const oldest = Effect.gen(function* () {
        const { total } = yield* daemon.logs(id, { page: 1, per_page: 1 })
        return (yield* daemon.logs(id, { page: total, per_page: 1 })).items[0] ?? ""
      })
      yield* until(
        "the oldest line says what is missing",
        Effect.map(oldest, (text) => /^\[\d+ bytes of output were left out here\]$/.test(text))
      )
    }).pipe(Effect.scoped)
  )

  it.live(
    "a server that does not read its console: commands are 409 once the pipe is full, and never hang",
    () =>
      Effect.gen(function* () {
        const { daemon, running } = yield* harness()
        const id = yield* running({ process: { invocation: "sh -c 'echo ready; exec sleep 300'" } })
        const line = "x".repeat(4000)
        const error = yield* Effect.flip(
          daemon.commands(
            id,
            Array.from({ length: 40 }, () => line)
          )
        )
        assert.strictEqual(error._tag === "DaemonRefused" && error.status, 409)
        assert.include(error._tag === "DaemonRefused" ? error.detail : "", "does not read its console")
        const bad = yield* Effect.flip(daemon.commands(id, ["say hi\nstop"]))
        assert.strictEqual(bad._tag === "DaemonRefused" && bad.status, 422)
      }).pipe(Effect.scoped)
  )

  it.live("a costly pattern does not block the daemon", () =>
    Effect.gen(function* () {
      const { crashes, daemon, installed } = yield* harness()
      const id = yield* installed({
        process: {
          invocation: `sh -c 'echo ${"a".repeat(60)}b; exec sleep 300'`,
          online_signal: "regex:^(a|aa)+$",
          start_timeout: 0.5
        }
      })
      yield* daemon.power(id, "start", 30)
      yield* until("timed out", () => crashes(id).length === 1)
      assert.strictEqual(crashes(id)[0]?.reason, "start timed out")
    }).pipe(Effect.scoped)
  )

  it.live("subscriptions end when the server is removed", () =>
    Effect.gen(function* () {
      const { daemon, running } = yield* harness()
      const id = yield* running()
      const lines = yield* daemon.console(id)
      const began = yield* Deferred.make<void>()
      const fiber = yield* lines.pipe(
        Stream.tap(() => Deferred.succeed(began, undefined)),
        Stream.runCollect,
        Effect.forkChild
      )
      yield* daemon.commands(id, ["x"])
      yield* Deferred.await(began)
      yield* daemon.remove(id)
      assert.deepStrictEqual([...(yield* Fiber.join(fiber))], ["got x"])
    }).pipe(Effect.scoped)
  )
})
