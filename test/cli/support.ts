/** Commands against the service of the tests. */
import { join, resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert } from "@effect/vitest"
import { ConfigProvider, Console, Effect, Runtime, Stdio } from "effect"
import { commandLine } from "../../src/cli/commands.ts"
import { startChild } from "../support/child.ts"
import { type Ended, muster } from "../support/command.ts"
import { Muster } from "../support/Muster.ts"

const root = resolve(import.meta.dirname, "../..")

export const environment = Effect.map(Muster, ({ key, url }) => ({ MUSTER_URL: url, MUSTER_API_KEY: key }))

/** Whether a command writes bytes to standard output. It needs a process of its own. */
const writesBytes = ([, second, ...others]: ReadonlyArray<string>) => second === "cat" || others.includes("-")

/**
 * Runs a command against the service of the tests, without a process if that makes no difference: its start would be
 * most of the work.
 */
export const run = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  if (writesBytes(args)) return yield* muster(args, yield* environment)
  const printed = { stdout: "", stderr: "" }
  const to = (stream: keyof typeof printed) => (text: unknown) => {
    printed[stream] += `${text}\n`
  }
  const env = { ...(yield* environment), XDG_CONFIG_HOME: "/dev/null" }
  const exit = yield* commandLine(args[0]).pipe(
    Effect.provideService(Console.Console, { ...console, log: to("stdout"), error: to("stderr") }),
    Effect.provide([
      NodeServices.layer,
      Stdio.layerTest({ args: Effect.succeed(args) }),
      ConfigProvider.layer(ConfigProvider.fromEnv({ env }))
    ]),
    Effect.exit
  )
  const code = yield* Effect.callback<number>((resume) =>
    Runtime.defaultTeardown(exit, (status) => resume(Effect.succeed(status)))
  )
  return { ...printed, code } satisfies Ended
})

/** Runs a command that must succeed, and returns its standard output. */
export const done = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const { code, stderr, stdout } = yield* run(...args)
  assert.strictEqual(code, 0, `muster ${args.join(" ")}: ${stderr}`)
  return stdout.trimEnd()
})

/** Runs a command that must end with a status, and returns its standard error. */
export const refused = Effect.fnUntraced(function* (status: number, ...args: ReadonlyArray<string>) {
  const { code, stderr, stdout } = yield* run(...args)
  assert.deepStrictEqual([code, stdout], [status, ""], `muster ${args.join(" ")}: ${stderr}`)
  return stderr.trimEnd()
})

/** Starts a command that runs until a signal. */
export const started = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  return yield* startChild([process.execPath, join(root, "dist/main.js"), ...args], {
    cwd: root,
    env: { ...(yield* environment), XDG_CONFIG_HOME: "/dev/null" }
  })
})

/** Starts a command on a terminal of its own. */
export const onTerminalWith = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>) => {
  const command = [process.execPath, join(root, "dist/main.js"), ...args].join(" ")
  return startChild(["script", "--quiet", "--return", "--command", command, "/dev/null"], {
    cwd: root,
    env: { ...env, XDG_CONFIG_HOME: "/dev/null", TERM: "xterm" }
  })
}

/** Starts a command on a terminal of its own, against the service of the tests. */
export const onTerminal = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  return yield* onTerminalWith(yield* environment, ...args)
})
