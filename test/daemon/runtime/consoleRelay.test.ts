import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { CONSOLE_BOUND, RELAY_MAX, readCutRecord } from "../../../src/daemon/console/consoleFiles.ts"
import { parseStat } from "../../../src/daemon/host/procfs.ts"
import { relayArguments } from "../../../src/daemon/runtime/processConsole.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { smallDisk } from "../files/scene.ts"
import { consoleBytes, sizeOf } from "../support.ts"

const MIB = 1024 * 1024

const shells = (
  [
    ["sh", []],
    ["bash", ["--posix"]],
    ["busybox", ["sh"]]
  ] as const
).filter(([program]) => spawnSync(program, ["-c", "true"]).error === undefined)

/** Starts a relay with its input; ends it with the scope. */
const relayIn = (folder: string, begin = 0, [program, args]: (typeof shells)[number] = ["sh", []]) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child: ChildProcess = spawn(program, [...args, ...relayArguments("", begin)], {
        cwd: folder,
        stdio: ["pipe", "ignore", "ignore"]
      })
      const over = () => child.exitCode !== null || child.signalCode !== null
      return { child, over, write: (bytes: Uint8Array | string) => child.stdin?.write(bytes) }
    }),
    ({ child }) => Effect.sync(() => child.stdin?.end())
  )

/** Numbered lines, so that every byte has a known position. */
const numbered = (mib: number) => {
  const count = Math.ceil((mib * MIB) / 64)
  return Buffer.from(Array.from({ length: count }, (_, i) => `${String(i).padStart(63, ".")}\n`).join(""))
}

const childrenOf = (pid: number) =>
  readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const proc = parseStat(readFileSync(`/proc/${name}/stat`, "latin1"))
      return proc?.ppid === pid ? [proc.pid] : []
    } catch {
      return [] // The process has ended.
    }
  })

describe("process runtime, console without the daemon", () => {
  for (const shell of shells) {
    it.live(
      `output arrives at once; the newest is kept, and the omitted bytes are counted: ${shell[0]}`,
      () =>
        Effect.gen(function* () {
          const folder = yield* temporaryFolder
          const log = join(folder, "console.log")
          writeFileSync(log, "before\n")
          const { child, over, write } = yield* relayIn(folder, 7, shell)
          write("first\n")
          yield* until("the first line", () => readFileSync(log, "utf8") === "before\nfirst\n")
          let most = 0
          const bytes = numbered(70)
          write(bytes)
          child.stdin?.end()
          yield* until(
            "all is copied",
            () => {
              most = Math.max(most, consoleBytes(folder))
              return over()
            },
            60
          )
          assert.strictEqual(child.exitCode, 0)
          assert.isAtMost(most, 2 * CONSOLE_BOUND + 4096)
          const left = Buffer.concat([readFileSync(`${log}.1`), readFileSync(log)])
          assert.isAtLeast(left.length, RELAY_MAX)
          assert.isTrue(left.equals(bytes.subarray(bytes.length - left.length)))
          const lostBytes = bytes.length + "before\nfirst\n".length - left.length
          assert.deepStrictEqual(yield* readCutRecord(folder), { begins: "gone", lostBytes })
        }).pipe(Effect.scoped)
    )
  }

  it.live("the first run omits nothing, and its start position is known", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const log = join(folder, "console.log")
      writeFileSync(log, "before\n")
      const { over, child, write } = yield* relayIn(folder, 7)
      write(numbered(17))
      child.stdin?.end()
      yield* until("all is copied", over, 60)
      assert.strictEqual(sizeOf(log) + sizeOf(`${log}.1`), 17 * MIB + 7)
      assert.deepStrictEqual(yield* readCutRecord(folder), { begins: 7, lostBytes: 0 })
    }).pipe(Effect.scoped)
  )

  it.live("a full disk never blocks the server; the console continues once there is space", () =>
    Effect.gen(function* () {
      const folder = yield* smallDisk(2)
      const log = join(folder, "console.log")
      writeFileSync(join(folder, "ballast"), Buffer.alloc(1.5 * MIB))
      const { child, write } = yield* relayIn(folder)
      write(numbered(8))
      yield* until("all input is read", () => child.stdin?.writableLength === 0, 60)
      writeFileSync(join(folder, "ballast"), "")
      yield* until("it is written again", () => {
        write("once more\n")
        return readFileSync(log, "utf8").includes(
          "\n[some output is missing here: the disk was full]\nonce more\n"
        )
      })
    }).pipe(Effect.scoped)
  )

  it.live("a killed copier is replaced", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const log = join(folder, "console.log")
      const { child, over, write } = yield* relayIn(folder)
      write("one\n")
      yield* until("one", () => sizeOf(log) > 0)
      const [copier] = childrenOf(child.pid ?? 0)
      if (copier === undefined) return yield* Effect.die("unreachable: a copier waits for output")
      process.kill(copier, "SIGKILL")
      yield* until("two", () => {
        write("two\n")
        return readFileSync(log, "utf8").endsWith("two\n")
      })
      assert.isFalse(over())
    }).pipe(Effect.scoped)
  )
})
