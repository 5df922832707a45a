import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Helper, HelperProcess, helperProgram } from "../../../src/daemon/helper/Helper.ts"
import { runProgram } from "../../../src/daemon/host/runTool.ts"
import { eventually } from "../../support/eventually.ts"
import { readProcs } from "../../support/processes.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const opened = Effect.acquireRelease(
  Effect.sync(() => new HelperProcess()),
  (helper) => Effect.sync(() => helper.close())
)

/** Returns the pids of this process's children that run a program. */
const childrenWith = (word: string, parent = process.pid) =>
  readProcs()
    .filter(({ pid, ppid }) => ppid === parent && commandOf(pid).includes(word))
    .map(({ pid }) => pid)

const commandOf = (pid: number): ReadonlyArray<string> => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")
  } catch {
    return [] // it has ended
  }
}

/** Starts a program that only a kill ends: `cp` waits for a pipe without a writer. */
const waiting = Effect.fnUntraced(function* (helper: HelperProcess, folder: string) {
  const before = new Set(childrenWith("perl"))
  const pipe = join(folder, "pipe")
  assert.strictEqual((yield* helper.request("run", ["mkfifo", pipe])).code, 0)
  const [pid = 0] = childrenWith("perl").filter((other) => !before.has(other))
  const request = yield* Effect.forkChild(Effect.exit(helper.request("run", ["cp", pipe, `${pipe}.copy`])))
  const running = () =>
    readProcs().some((proc) => commandOf(proc.pid)[0] === "cp" && commandOf(proc.pid)[1] === pipe)
  yield* eventually(running, (is) => is)
  return { pid, request, running, pipe }
})

describe("helper: programs without a fork of this process", () => {
  it.effect("runs a program of its list with its words unchanged, and returns its end", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const helper = yield* opened
      const names = ["$(id)", "a b\nc", "-n", "'\"`id`", "ü"]
      for (const name of names) {
        writeFileSync(join(folder, name), "x")
        const { code, errors } = yield* helper.request("run", ["rm", "--", join(folder, name)])
        assert.deepStrictEqual({ code, errors }, { code: 0, errors: "" })
      }
      assert.deepStrictEqual(readdirSync(folder), [])
      const missing = yield* helper.request("run", ["rm", join(folder, "none")])
      assert.strictEqual(missing.code, 1)
      assert.match(missing.errors, /^rm: .*No such file or directory\n$/)
    })
  )

  it.effect("refuses other programs and commands", () =>
    Effect.gen(function* () {
      const helper = yield* opened
      const other = yield* helper.request("run", ["sh", "-c", "true"])
      assert.deepStrictEqual([other.code, other.errors], [1, "sh is not a program of the helper\n"])
    })
  )

  it.effect("an interruption kills the program and waits for its end", () =>
    Effect.gen(function* () {
      const helper = yield* opened
      const { request, running } = yield* waiting(helper, yield* temporaryFolder)
      yield* Fiber.interrupt(request)
      assert.isFalse(running())
    })
  )

  it.effect("a kill -9 ends the programs of the helper; the next request starts it again", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const helper = yield* opened
      const { pid, request, running } = yield* waiting(helper, folder)
      process.kill(pid, "SIGKILL")
      const error = yield* Effect.flip(Effect.flatten(Fiber.join(request)))
      assert.strictEqual(error._tag, "HelperLost")
      yield* eventually(running, (is) => !is)
      const again = yield* helper.request("run", ["mkfifo", join(folder, "other")])
      assert.strictEqual(again.code, 0)
    })
  )

  it.effect("completes its requests after it is closed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const helper = yield* opened
      const { pipe, request } = yield* waiting(helper, folder)
      helper.close()
      writeFileSync(pipe, "content")
      const { code } = yield* Effect.flatten(Fiber.join(request))
      assert.strictEqual(code, 0)
      assert.strictEqual(readFileSync(`${pipe}.copy`, "utf8"), "content")
    })
  )

  it.effect("the kill -9 of its service ends its requests", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const service = spawn("sleep", ["300"])
      const ended = once(service, "exit")
      const helper = new HelperProcess(helperProgram(service.pid))
      const { request, running } = yield* waiting(helper, folder)
      service.kill("SIGKILL")
      yield* Effect.promise(() => ended)
      helper.close()
      const error = yield* Effect.flip(Effect.flatten(Fiber.join(request)))
      assert.strictEqual(error._tag, "HelperLost")
      yield* eventually(running, (is) => !is)
    })
  )

  it.effect("a request whose own process is killed is repeated if that is harmless", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const helper = yield* opened
      const { pid, pipe, request } = yield* waiting(helper, folder)
      yield* Fiber.interrupt(request)
      const copied = yield* Effect.forkChild(
        Effect.provideService(runProgram(["cp", pipe, `${pipe}.copy`]), Helper, helper)
      )
      const [worker = 0] = yield* eventually(
        () => childrenWith("perl", pid),
        (workers) => workers.length > 0
      )
      process.kill(worker, "SIGKILL")
      yield* eventually(
        () => childrenWith("perl", pid),
        ([other = worker]) => other !== worker
      )
      writeFileSync(pipe, "content")
      assert.strictEqual((yield* Fiber.join(copied)).code, 0)
    })
  )

  it.effect("without perl, this process runs programs itself", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      mkdirSync(join(folder, "one"))
      const helper = new HelperProcess(["no-such-perl"])
      const { code } = yield* Effect.provideService(
        runProgram(["rm", "-r", join(folder, "one")]),
        Helper,
        helper
      )
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(readdirSync(folder), [])
    })
  )
})
