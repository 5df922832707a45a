import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../../src/contract/domain/Id.ts"
import { NEW_DEFINITION } from "../../../src/contract/domain/InstallState.ts"
import { until } from "../../support/eventually.ts"
import { alive, harness, pidIn } from "../support.ts"

/** The end of every failure reason that only the log can explain. */
const readTheLog = `(node test-node): read the install log; if the cause has passed, reinstall; otherwise ${NEW_DEFINITION}`

/** Returns the link to the base of a software, whose name ends with the hash of the script. */
const baseOf = (dataDir: string, software = "echo") => {
  const folder = join(dataDir, "base", software)
  return join(folder, readdirSync(folder).find((name) => name.startsWith("1.0")) ?? "")
}
/** Returns the unfinished entries of the base folder. */
const leftovers = (dataDir: string) =>
  readdirSync(join(dataDir, "base")).filter((name) => name.startsWith(".aside"))

describe("blueprints, software: install script", () => {
  it.live(
    "concurrent installations of one base run the script once, and each server has the log; a later one says that it ran before",
    () =>
      Effect.gen(function* () {
        const { create, daemon, dataDir, lastInstall } = yield* harness()
        const count = join(dataDir, "count")
        const install = {
          script: `echo once >> ${count}; echo "$SOFTWARE_ID $VERSION"; sleep 0.3; pwd > here; echo x > a.txt`
        }
        const ids = yield* Effect.forEach([1, 2, 3, 4], () => create({ install }))
        yield* until("all are ready", () => ids.every((id) => lastInstall(id)?.phase === "ready"))
        const late = yield* create({ install })
        yield* until("ready", () => lastInstall(late)?.phase === "ready")
        assert.strictEqual(readFileSync(count, "utf8"), "once\n")
        for (const id of [...ids, late]) {
          assert.strictEqual(readFileSync(join(dataDir, "servers", id, "files", "a.txt"), "utf8"), "x\n")
          const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
          if (id !== late) assert.deepStrictEqual(items, ["echo 1.0"])
          else
            assert.match(
              items.join(),
              /^\[installed from the cache of 2[^,]+Z: the script did not run again\]$/
            )
        }
        assert.strictEqual(lastInstall(ids[0] ?? "")?.exit_code, 0)
        assert.deepStrictEqual(leftovers(dataDir), [])
      }).pipe(Effect.scoped)
  )

  it.live("a script has its lines ended by \\r\\n or \\n, and its input at the end", () =>
    Effect.gen(function* () {
      const { create, daemon, lastInstall } = yield* harness()
      const script = "set -eu\r\nif true; then\r\n  read x || x=none\r\nfi\r\necho got=$x\r\n"
      const id = yield* create({ install: { script } })
      yield* until("ready", () => lastInstall(id)?.phase === "ready")
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, ["got=none"])
    }).pipe(Effect.scoped)
  )

  it.live("the log shows no path of the node", () =>
    Effect.gen(function* () {
      const { create, daemon, dataDir, lastInstall } = yield* harness()
      const script =
        "exec 2>&1; nothing-here; echo $INSTALL_DIR/a $HOME; pwd -P; printf $(dirname $PWD); printf $PWD"
      const id = yield* create({ install: { script } })
      yield* until("ready", () => lastInstall(id)?.phase === "ready")
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.match(items[0] ?? "", /^\/mnt\/install\/script: .*nothing-here/)
      assert.deepStrictEqual(items.slice(1), [
        "/home/container/a /mnt/install/home",
        "/home/container",
        "/mnt/install/home/container" // two paths
      ])
      assert.notInclude(items.join(), dataDir)
    }).pipe(Effect.scoped)
  )

  it.live("a script that fails leaves no base, and the failure reason names its exit code", () =>
    Effect.gen(function* () {
      const { create, dataDir, daemon, lastInstall, lastStatus } = yield* harness()
      const id = yield* create({ install: { script: "echo half > file; echo oops >&2; exit 3" } })
      yield* until("failed", () => lastStatus(id) === "offline")
      assert.deepInclude(lastInstall(id), {
        phase: "failed",
        exit_code: 3,
        failure_reason: `install script exited with 3 ${readTheLog}`
      })
      assert.isFalse(existsSync(join(dataDir, "base/echo")))
      assert.deepStrictEqual(leftovers(dataDir), [])
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, ["oops", "", `[install script exited with 3 ${readTheLog}]`])
    }).pipe(Effect.scoped)
  )

  it.live("a script over its time limit is killed with all its descendants", () =>
    Effect.gen(function* () {
      const { create, dataDir, lastInstall } = yield* harness()
      const pid = join(dataDir, "pid")
      const id = yield* create({
        install: { script: `setsid sleep 300 & echo $! > ${pid}; sleep 300`, timeout: 0.3 }
      })
      yield* until("failed", () => lastInstall(id)?.phase === "failed")
      assert.strictEqual(
        lastInstall(id)?.failure_reason,
        `install script timed out after 0.3 s ${readTheLog}`
      )
      assert.isFalse(alive(pidIn(pid)))
      assert.deepStrictEqual(leftovers(dataDir), [])
    }).pipe(Effect.scoped)
  )

  it.live("a flood of output that is not UTF-8 is bounded; its end is kept", () =>
    Effect.gen(function* () {
      const { create, daemon, dataDir, lastInstall } = yield* harness()
      const id = yield* create({
        install: { script: "head -c 30000000 /dev/urandom; echo; echo the end" }
      })
      yield* until("ready", () => lastInstall(id)?.phase === "ready")
      assert.isBelow(statSync(join(dataDir, "servers", id, "install.log")).size, 1.2 * 1024 * 1024)
      const total = (yield* daemon.installLogs(id, { page: 1, per_page: 1 })).total
      const last = yield* daemon.installLogs(id, { page: total, per_page: 1 })
      assert.deepStrictEqual(last.items, ["the end"])
    }).pipe(Effect.scoped)
  )

  it.live("skip_scripts and software without a script give an empty base", () =>
    Effect.gen(function* () {
      const { dataDir, installed, lastInstall } = yield* harness()
      const id = yield* installed({ install: { script: "exit 9", skip_scripts: true } })
      assert.strictEqual(lastInstall(id)?.phase, "ready")
      assert.deepStrictEqual(readdirSync(join(dataDir, "servers", id, "files")), [])
    }).pipe(Effect.scoped)
  )

  it.live("servers share a base unless a variable that the script reads differs", () =>
    Effect.gen(function* () {
      const { dataDir, installed } = yield* harness()
      const count = join(dataDir, "count")
      const install = {
        script: `echo once >> ${count}; echo "$FLAVOUR $SERVER_MEMORY $BUILD_NUMBER \${MOTD-unseen}" > seen; # MOTD is not set`
      }
      const make = (env: Record<string, string>, memory_limit = 512) =>
        Effect.map(installed({ install, definition: { env, limits: { memory_limit } } }), (id) =>
          readFileSync(join(dataDir, "servers", id, "files", "seen"), "utf8").trim()
        )
      const mint = { FLAVOUR: "mint" }
      assert.strictEqual(yield* make({ ...mint, OTHER: "1" }), "mint 512 latest unseen")
      assert.strictEqual(yield* make({ ...mint, OTHER: "2" }), "mint 512 latest unseen")
      assert.strictEqual(readFileSync(count, "utf8"), "once\n")
      assert.strictEqual(yield* make({ FLAVOUR: "lime", BUILD_NUMBER: "17" }), "lime 512 17 unseen")
      assert.strictEqual(yield* make({ ...mint, OTHER: "1" }, 256), "mint 256 latest unseen")
      assert.strictEqual(readFileSync(count, "utf8"), "once\n".repeat(3))
      const bases = readdirSync(join(dataDir, "base", "echo"))
      assert.lengthOf(bases, 3)
      assert.isFalse(bases.some((name) => /mint|lime|512/.test(name)))
    }).pipe(Effect.scoped)
  )

  it.live("of the unused bases that differ in variables, the newest stay", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed } = yield* harness()
      const install = { script: 'echo "$FLAVOUR" > flavour' }
      const ids: Array<ServerId> = []
      for (let n = 0; n < 6; n++) {
        ids.push(yield* installed({ install, definition: { env: { FLAVOUR: `f${n}` } } }))
      }
      const bases = () => readdirSync(join(dataDir, "base", "echo")).length
      const generations = () => readdirSync(join(dataDir, "base", ".generations")).length
      const logs = () => readdirSync(join(dataDir, "base", ".logs", "echo")).length
      assert.deepStrictEqual([bases(), generations(), logs()], [6, 6, 6])
      for (const id of ids) yield* daemon.remove(id)
      yield* until("older bases are removed", () => bases() === 4 && generations() === 4 && logs() === 4)
      const again = yield* installed({ install, definition: { env: { FLAVOUR: "f0" } } })
      assert.strictEqual(readFileSync(join(dataDir, "servers", again, "files", "flavour"), "utf8"), "f0\n")
    }).pipe(Effect.scoped)
  )

  it.live("a removal stops an installation that no other server needs", () =>
    Effect.gen(function* () {
      const { create, daemon, dataDir, lastInstall } = yield* harness()
      const install = { script: "echo $$ > $INSTALL_DIR/pid; exec sleep 300" }
      const first = yield* create({ install })
      const second = yield* create({ install })
      yield* until("both wait", () => lastInstall(first) !== undefined && lastInstall(second) !== undefined)
      const pids = () =>
        leftovers(dataDir).flatMap((name) => {
          const file = join(dataDir, "base", name, "base", "pid")
          return [pidIn(file)]
        })
      yield* until("script runs", () => pids().some((pid) => pid > 0))
      const [pid = 0] = pids()
      yield* daemon.remove(first)
      yield* until("the other installation continues", () => pids().some(alive))
      assert.strictEqual(lastInstall(second)?.phase, "installing")
      const last = pids()
      yield* daemon.remove(second)
      assert.isFalse([pid, ...last].some(alive))
      assert.deepStrictEqual(leftovers(dataDir), [])
      yield* until("their trees are gone", () => readdirSync(join(dataDir, "servers")).length === 0)
    }).pipe(Effect.scoped)
  )

  it.live(
    "the warm-up starts once, waits for the signal, stops, cleans up and leaves no patch in the base",
    () =>
      Effect.gen(function* () {
        const { dataDir, daemon, installed, lastInstall } = yield* harness()
        const id = yield* installed({
          process: { invocation: "sh run.sh" },
          definition: {
            configs: { "a.properties": { parser: "properties", find: { motd: "mine", "*.x": "none" } } }
          },
          install: {
            script:
              "printf 'cat a.properties; mkdir world; echo made > cache; echo ready; read l; echo bye $l' > run.sh",
            warmup: true,
            post_warmup_script: "rm -r world"
          }
        })
        assert.strictEqual(lastInstall(id)?.phase, "ready")
        const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
        const warning = '[WARN config patch of a.properties: "*.x" matches nothing: no key of the file fits]'
        assert.deepStrictEqual(items, [warning, "motd=mine", "ready", "bye stop"])
        assert.deepStrictEqual(readdirSync(baseOf(dataDir)).sort(), ["cache", "run.sh"])
      }).pipe(Effect.scoped)
  )

  it.live("the online signal of a warm-up may be a prompt", () =>
    Effect.gen(function* () {
      const { daemon, installed, lastInstall } = yield* harness()
      const invocation = `sh -c "printf 'Ready> '; read -r line; echo bye"`
      const process = { invocation, online_signal: "regex:^Ready> $" }
      const id = yield* installed({ process, install: { warmup: true } })
      assert.strictEqual(lastInstall(id)?.phase, "ready")
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, ["Ready> bye"])
    }).pipe(Effect.scoped)
  )

  it.live("of a progress bar, the log has the last state", () =>
    Effect.gen(function* () {
      const { daemon, installed } = yield* harness()
      const script =
        "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); printf '\\rStep %d of 3000' $i; done; echo; echo done"
      const id = yield* installed({ install: { script } })
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, ["Step 3000 of 3000", "done"])
    }).pipe(Effect.scoped)
  )

  it.live("a config patch without a match at a start is one warning in the install log", () =>
    Effect.gen(function* () {
      const { daemon, lastStatus, running } = yield* harness()
      const id = yield* running({
        definition: { configs: { "a.sh": { parser: "file", find: { "PORT=": "PORT=1" } } } }
      })
      for (const action of ["stop", "start"] as const) {
        yield* daemon.power(id, action, 30)
        const status = action === "stop" ? "offline" : "running"
        yield* until(status, () => lastStatus(id) === status)
      }
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, [
        '[WARN config patch of a.sh: "PORT=" matches nothing: the file does not exist]'
      ])
    }).pipe(Effect.scoped)
  )

  it.live("the warm-up of software with `terminal: true` has a terminal", () =>
    Effect.gen(function* () {
      const { daemon, installed, lastInstall } = yield* harness()
      const id = yield* installed({
        process: { invocation: "sh run.sh", terminal: true },
        install: {
          script: "echo '[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo ready; read line; echo bye $line' > run.sh",
          warmup: true
        }
      })
      assert.strictEqual(lastInstall(id)?.phase, "ready")
      const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
      assert.deepStrictEqual(items, ["ready", "bye stop"])
    }).pipe(Effect.scoped)
  )

  it.live("a failed warm-up is retried, then fails the installation or is ignored", () =>
    Effect.gen(function* () {
      const { create, dataDir, lastInstall } = yield* harness()
      const process = { invocation: `sh -c 'echo try >> ${dataDir}/tries; exit 5'` }
      const warm = { script: "true", warmup: true, warmup_retries: 2 }
      const strict = yield* create({ process, install: warm })
      yield* until("failed", () => lastInstall(strict)?.phase === "failed")
      assert.strictEqual(
        lastInstall(strict)?.failure_reason,
        `warm-up ended with exit code 5 before its online signal ${readTheLog}`
      )
      assert.strictEqual(readFileSync(join(dataDir, "tries"), "utf8"), "try\ntry\ntry\n")
      const lax = yield* create({ process, install: { ...warm, warmup_failure_policy: "ignore" } })
      yield* until("ready", () => lastInstall(lax)?.phase === "ready")
    }).pipe(Effect.scoped)
  )

  it.live("a reinstall runs the script again; a saved server keeps its own files", () =>
    Effect.gen(function* () {
      const { daemon, dataDir, installed, lastInstall, lastStatus, notes, statuses } = yield* harness()
      const install = { script: `echo run >> ${dataDir}/runs; wc -l < ${dataDir}/runs > version` }
      const saved = yield* installed({ install })
      const fleeting = yield* installed({ install, definition: { save: false } })
      for (const id of [saved, fleeting]) {
        const files = join(dataDir, "servers", id, "files")
        writeFileSync(join(files, "world"), "mine")
        const before = notes.reports.length
        yield* daemon.reinstall(id)
        yield* until("reinstalled", () => lastStatus(id) === "offline" && notes.reports.length >= before + 4)
        assert.deepStrictEqual(statuses(id).slice(-3), ["offline", "installing", "offline"])
        assert.strictEqual(lastInstall(id)?.phase, "ready")
        assert.strictEqual(existsSync(join(files, "world")), id === saved)
      }
      const version = (id: string) =>
        readFileSync(join(dataDir, "servers", id, "files", "version"), "utf8").trim()
      assert.deepStrictEqual([version(saved), version(fleeting)], ["2", "3"])
    }).pipe(Effect.scoped)
  )

  it.live("a base is kept while an instance uses it, also after reinstalls, and no longer", () =>
    Effect.gen(function* () {
      const { close, daemon, dataDir, installed, lastStatus, notes } = yield* harness()
      const install = { script: `echo run >> ${dataDir}/runs; wc -l < ${dataDir}/runs > version` }
      const generations = () => readdirSync(join(dataDir, "base/.generations")).length
      const [one, two] = [yield* installed({ install }), yield* installed({ install })]
      const versionOf = (id: string) =>
        readFileSync(join(dataDir, "servers", id, "files", "version"), "utf8").trim()
      const reinstall = Effect.fnUntraced(function* (id: ServerId) {
        const before = notes.reports.length
        yield* daemon.reinstall(id)
        yield* until("reinstalled", () => lastStatus(id) === "offline" && notes.reports.length >= before + 4)
      })
      yield* reinstall(two)
      yield* reinstall(two)
      assert.deepStrictEqual([versionOf(one), versionOf(two)], ["1", "3"])
      yield* until("the unused generation is removed", () => generations() === 2)
      yield* daemon.power(one, "start", 30)
      yield* until("it runs", () => lastStatus(one) === "running")
      yield* daemon.power(one, "kill", 0)
      yield* until("offline", () => lastStatus(one) === "offline")
      yield* daemon.remove(one)
      yield* until("the first has gone", () => generations() === 1)
      assert.strictEqual(readFileSync(join(baseOf(dataDir), "version"), "utf8").trim(), "3")
      yield* close
      assert.strictEqual(generations(), 1)
    }).pipe(Effect.scoped)
  )
})
