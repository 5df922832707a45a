/** Commands against the service of the tests. */
import { join, resolve } from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { startChild } from "../support/child.ts"
import { muster } from "../support/command.ts"
import { Muster } from "../support/Muster.ts"

const root = resolve(import.meta.dirname, "../..")

export const environment = Effect.map(Muster, ({ key, url }) => ({ MUSTER_URL: url, MUSTER_API_KEY: key }))

/** Runs a command against the service of the tests. */
export const run = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  return yield* muster(args, yield* environment)
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
