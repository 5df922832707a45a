import { appendFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import {
  appendInstallLog,
  installLogPath,
  openBoundedLog,
  takeInstallLog
} from "../../../src/daemon/install/installLog.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const done = { isComplete: true }

describe("blueprints, Software: the install log", () => {
  it.live(
    "servers of a base share its log; a line about one is not in that of others, nor are those of the next base",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const shared = join(folder, "base.log")
        writeFileSync(shared, "installed\n")
        const servers = ["one", "two"].map((name) => join(folder, name))
        for (const server of servers) {
          mkdirSync(server)
          yield* takeInstallLog(shared, server, done)
        }
        const [one = "", two = ""] = servers.map(installLogPath)
        assert.strictEqual(statSync(one).ino, statSync(two).ino)
        yield* appendInstallLog(servers[0] ?? "", "a warning\n")
        const log = yield* openBoundedLog(shared)
        yield* log.line("again")
        const text = (path: string) => readFileSync(path, "utf8")
        assert.deepStrictEqual([one, two, shared].map(text), [
          "installed\na warning\n",
          "installed\n",
          "again\n"
        ])
        yield* takeInstallLog(shared, servers[0] ?? "", done)
        assert.strictEqual(text(one), "again\n")
      }).pipe(Effect.scoped)
  )

  it.live(
    "a server whose installation fails has the log so far, not that of an installation that goes on",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const shared = join(folder, "base.log")
        writeFileSync(shared, "step 1\n")
        const server = join(folder, "server")
        mkdirSync(server)
        yield* takeInstallLog(shared, server, { isComplete: false })
        appendFileSync(shared, "step 2\n")
        assert.strictEqual(readFileSync(installLogPath(server), "utf8"), "step 1\n")
      })
  )

  it.live("a server whose base has no log has none", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      yield* appendInstallLog(folder, "of an earlier installation\n")
      yield* takeInstallLog(join(folder, "missing"), folder, done)
      assert.strictEqual(statSync(installLogPath(folder), { throwIfNoEntry: false }), undefined)
      yield* appendInstallLog(folder, "a line\n")
      assert.strictEqual(readFileSync(installLogPath(folder), "utf8"), "a line\n")
    })
  )
})
