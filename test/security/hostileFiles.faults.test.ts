/** Files of a hostile server that are hard to measure or remove, or exhaust the open files of the daemon. */

import { spawnSync } from "node:child_process"
import { chownSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { removeTree } from "../../src/daemon/disk/fsio.ts"
import { treeSize } from "../../src/daemon/files/copyTree.ts"
import { harness } from "../daemon/support.ts"
import { until } from "../support/eventually.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"

const ORDINARY = 12_345

/** `rm` removes paths that are longer than Node.js can name. */
const folder = Effect.tap(temporaryFolderIn("/tmp"), (path) =>
  Effect.addFinalizer(() => Effect.sync(() => spawnSync("rm", ["-rf", path])))
)

const nest = (name: string, levels: number) => `
  const fs = require("node:fs")
  for (let level = 0; level < ${levels}; level++) { fs.mkdirSync("${name}"); process.chdir("${name}"); fs.writeFileSync("f", "") }`

/** Nests folders deeper than PATH_MAX. */
const nestIn = (path: string, name: string, levels: number) => {
  const made = spawnSync(process.execPath, ["-e", nest(name, levels)], { cwd: path, encoding: "utf8" })
  assert.strictEqual(made.status, 0, made.stderr)
}

describe("SECURITY: files of a hostile server", () => {
  it.live("files are removed at any depth and with any bytes in their names", () =>
    Effect.gen(function* () {
      const top = join(yield* folder, "top")
      mkdirSync(join(top, "other"), { recursive: true })
      nestIn(top, "d".repeat(200), 100)
      nestIn(join(top, "other"), "e", 3000)
      const bytes = Buffer.concat([Buffer.from(`${top}/other/e/`), Buffer.from([0x61, 0xff])])
      mkdirSync(bytes)
      writeFileSync(Buffer.concat([bytes, Buffer.from([0x2f, 0x80])]), "")
      yield* removeTree(top)
      assert.isFalse(existsSync(top))
    }).pipe(Effect.scoped)
  )

  it.live("an ordinary user removes files that deny it access", () =>
    Effect.gen(function* () {
      const path = yield* folder
      chownSync(path, ORDINARY, ORDINARY)
      const url = (file: string) => pathToFileURL(join(import.meta.dirname, "../../src", file)).href
      const script = `
        import * as fs from "node:fs"
        import { Effect } from "effect"
        import { removeTree } from "${url("daemon/disk/fsio.ts")}"
        fs.mkdirSync("top/a/b/c", { recursive: true })
        fs.writeFileSync("top/a/b/file", "")
        fs.chmodSync("top/a/b", 0)
        fs.chmodSync("top/a", 0o500)
        await Effect.runPromise(removeTree("${join(path, "top")}"))`
      const file = join(import.meta.dirname, `.${process.pid}-removal.mjs`)
      const as =
        process.geteuid?.() === 0
          ? ["setpriv", `--reuid=${ORDINARY}`, `--regid=${ORDINARY}`, "--clear-groups"]
          : []
      const words = [...as, process.execPath, file]
      yield* Effect.acquireRelease(
        Effect.sync(() => writeFileSync(file, script)),
        () => Effect.sync(() => spawnSync("rm", ["-f", file]))
      )
      const ran = spawnSync(words[0] ?? "", words.slice(1), { cwd: path, encoding: "utf8" })
      assert.strictEqual(ran.status, 0, ran.stderr)
      assert.deepStrictEqual(readdirSync(path), [])
    }).pipe(Effect.scoped)
  )

  it.live("files deeper than PATH_MAX are removed in the background with their server", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed } = yield* harness({}, yield* folder)
      const id = yield* installed()
      nestIn(join(dataDir, "servers", id, "files"), "d", 3000)
      yield* daemon.remove(id)
      assert.isFalse(existsSync(join(dataDir, "servers", id)))
      yield* until("the tree is gone", () => readdirSync(join(dataDir, "servers")).length === 0)
    }).pipe(Effect.scoped)
  )

  it.live("measuring needs few open files; names that are not UTF-8 count", () =>
    Effect.gen(function* () {
      const top = yield* folder
      writeFileSync(Buffer.concat([Buffer.from(`${top}/`), Buffer.from([0xff])]), Buffer.alloc(1_000_000, 1))
      const flat = yield* treeSize(top)
      assert.isAtLeast(flat.bytes, 1_000_000)
      assert.isUndefined(flat.unmeasured)
      nestIn(top, "d", 2000)
      let most = 0
      const watch = setInterval(() => {
        most = Math.max(most, readdirSync("/proc/self/fd").length)
      }, 1)
      const before = readdirSync("/proc/self/fd").length
      const deep = yield* Effect.ensuring(
        treeSize(top),
        Effect.sync(() => clearInterval(watch))
      )
      assert.isDefined(deep.unmeasured)
      assert.isBelow(most - before, 300)
    }).pipe(Effect.scoped)
  )

  for (const [what, script, startsAgain] of [
    ["writes to its temporary folder", 'head -c 4000000 /dev/zero > "$TMPDIR/big"', true],
    ["gives a file a name that is no UTF-8", `head -c 4000000 /dev/zero > "$(printf 'a\\377')"`, false],
    [
      "nests its folders too deep to be measured",
      `n=0; while [ $n -lt 200 ]; do mkdir d; cd -P d; n=$((n+1)); done`,
      false
    ],
    ["writes 300 MB to a file without a name", "exec 3> big; rm big; head -c 300000000 /dev/zero >&3", true],
    ["makes 300,000 empty files", "seq 300000 | xargs touch", false],
    [
      "makes 300,000 files, then writes 400 MB",
      "seq 300000 | xargs touch; head -c 400000000 /dev/zero > big",
      false
    ]
  ] as const) {
    it.live(`the disk limit stops a server that ${what}`, () =>
      Effect.gen(function* () {
        const { create, daemon, lastStatus, notes, statuses } = yield* harness({ diskCheckSeconds: 0.1 })
        const id = yield* create({
          definition: { limits: { disk_space: 2 } },
          process: {
            invocation: `sh -c '${script.replaceAll("'", "'\\''")}; echo ready; exec sleep 60'`,
            online_signal: "ready",
            stop_command: "^SIGTERM"
          }
        })
        yield* until("installed", () => lastStatus(id) === "offline")
        const before = statuses(id).length
        yield* daemon.power(id, "start", 30)
        yield* until("it has run and is stopped", () => statuses(id).slice(before).at(-1) === "offline")
        const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
        const said = /^\[the node stops the server: (it exceeds its disk limit: .*2\.0 MB allowed.*)\]$/m
        const [, detail] = said.exec(items.join("\n")) ?? []
        assert.isDefined(detail)
        assert.deepInclude(notes.reports.at(-1), { type: "status", status: "offline" })
        assert.nestedInclude(notes.reports.at(-1), { "problem.code": "409", "problem.detail": detail })
        if (!startsAgain) {
          const again = yield* Effect.flip(daemon.power(id, "start", 30))
          assert.include("detail" in again ? again.detail : "", "its disk limit is 2.0 MB")
        }
        yield* daemon.remove(id)
      }).pipe(Effect.scoped)
    )
  }
})
