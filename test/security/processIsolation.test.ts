/**
 * A hostile server of the process runtime: under a daemon that is root, and one of an ordinary user; with kernel
 * namespaces, and without.
 */

import { execFileSync } from "node:child_process"
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ProcessIsolation } from "../../src/contract/domain/Node.ts"
import { readProc, readUid } from "../../src/daemon/host/procfs.ts"
import { daemonProcessAs, stateOf } from "../daemon/daemonChild.ts"
import { newId } from "../daemon/support.ts"
import { until } from "../support/eventually.ts"
import { otherUsers } from "../support/otherUsers.ts"
import { readProcs } from "../support/processes.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"

/** The uid of an ordinary user. */
const ORDINARY = 12_345
/** A separate uid range, because other tests run in parallel. */
const FIRST = 60_000 + (process.pid % 4000)
const uids = { first: FIRST, last: FIRST + 9 }

interface Scene {
  readonly name: string
  /** The command line that runs the daemon. */
  readonly by: ReadonlyArray<string>
  readonly owner: number
  readonly levels?: ReadonlyArray<ProcessIsolation>
  readonly expected: ProcessIsolation
}

/** The limit of processes of a server. */
const TASKS = 60

const asOrdinary = ["setpriv", `--reuid=${ORDINARY}`, `--regid=${ORDINARY}`, "--clear-groups"]
const root = { by: [], owner: 0 }
const scenes: ReadonlyArray<Scene> = [
  { ...root, name: "root", expected: "user+namespaces" },
  { ...root, name: "root without namespaces", levels: ["user"], expected: "user" },
  { name: "an ordinary user", by: asOrdinary, owner: ORDINARY, expected: "namespaces" }
]

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`
const textOf = (path: string) => (existsSync(path) ? readFileSync(path, "utf8") : "")
const commandOf = (pid: number) => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1")
  } catch {
    return "" // it has ended
  }
}

/** A folder outside of /tmp, which is hidden from servers in any case. */
const dataFolder = (owner: number) =>
  Effect.map(temporaryFolderIn("/var/lib"), (folder) => {
    const data = join(folder, "node")
    mkdirSync(data)
    for (const path of [folder, data]) {
      chownSync(path, owner, owner)
      chmodSync(path, 0o700)
    }
    writeFileSync(join(folder, "admin.key"), "a secret", { mode: 0o600 })
    chownSync(join(folder, "admin.key"), owner, owner)
    return { folder, data }
  })

const process_ = (script: string) => ({
  invocation: `sh -c ${quoted(script)}`,
  online_signal: "ready",
  stop_command: "^SIGTERM"
})

/** The runtime folder of a systemd session for an ordinary user, which the machine may not have. */
const sessionOf = (owner: number) =>
  owner === 0
    ? Effect.void
    : Effect.acquireRelease(
        Effect.sync(() => {
          mkdirSync(`/run/user/${owner}`, { recursive: true })
          writeFileSync(`/run/user/${owner}/bus`, "")
          chownSync(`/run/user/${owner}`, owner, owner)
        }),
        () => Effect.sync(() => rmSync(`/run/user/${owner}`, { recursive: true }))
      )

/** A shell that echoes lines of its console and stops on SIGTERM. */
const waits = `trap 'echo bye; exit 0' TERM; echo ready; while :; do if read -r line; then echo "got $line"; fi; done`

const opened = Effect.fnUntraced(function* (scene: Scene) {
  const { data, folder } = yield* dataFolder(scene.owner)
  const isolation = {
    mode: "auto",
    uids,
    tasks: TASKS,
    hidden: [folder],
    claimsDir: join(folder, "claims"),
    ...(scene.levels === undefined ? {} : { levels: scene.levels })
  }
  const start = () => daemonProcessAs(scene.by, data, "", "", "test-node", JSON.stringify(isolation))
  const files = (id: string) => join(data, "servers", id, "files")
  const console = (id: string) => textOf(join(data, "servers", id, "console.log"))
  const up = Effect.fnUntraced(function* (
    daemon: Effect.Success<ReturnType<typeof start>>,
    script: string,
    more: object = {}
  ) {
    const id = newId()
    yield* daemon.ask(`create ${JSON.stringify({ id, process: process_(script), ...more })}`)
    yield* until(`${id} is installed`, () => stateOf(data, id).status === "offline")
    yield* daemon.ask(`power ${id} start 30`)
    yield* until(`${id} runs: ${console(id)}`, () => stateOf(data, id).status === "running")
    return id
  })
  const run = (id: string): { readonly pid: number; readonly helpers: number } =>
    JSON.parse(textOf(join(data, "servers", id, "run.json")))
  return { folder, data, start, files, console, up, run }
})

/** The pid of a server's program on the machine. */
const programOf = ({ helpers, pid }: { readonly pid: number; readonly helpers: number }) => {
  let at = pid
  for (let depth = 0; depth < helpers; depth++) at = readProcs().find((proc) => proc.ppid === at)?.pid ?? 0
  return at
}

const attack = (at: {
  readonly folder: string
  readonly data: string
  readonly service: number
  readonly shim: number
  readonly victim: number
  readonly victimFiles: string
  readonly victimId: string
  readonly mark: string
  readonly namespaces: boolean
}) => `
try() { what=$1; shift; if "$@" > /dev/null 2>&1; then echo "BREACH: $what"; fi; }
grep -E '^(Uid|Cap|NoNewPrivs)' /proc/self/status | tr '\\t' ' '
try 'reads the key of the service' cat ${at.folder}/admin.key
try 'lists other servers' sh -c 'ls ${at.data}/servers | grep ${at.victimId}'
try 'reads the state of another server' cat ${at.victimFiles}/../server.json
for file in run.json console.log console.in tmp; do try "reads $file of another server" cat -- ${at.victimFiles}/../$file; done
try 'looks into base folders' ls ${at.data}/base/.generations
try 'lists base folders' ls ${at.data}/base
try 'lists volumes' ls ${at.data}/volumes
try 'writes beside another server' sh -c 'echo x > ${at.victimFiles}/../new'
try 'reads a file of another server' cat ${at.victimFiles}/secret
try 'writes a file of another server' sh -c 'echo x >> ${at.victimFiles}/secret'
try 'lists another server' ls ${at.victimFiles}
try 'reads the environment of the service' cat /proc/${at.service}/environ
try 'reads the environment of another server' cat /proc/${at.victim}/environ
try 'signals the service' kill -0 ${at.service}
try 'signals another server' kill -0 ${at.victim}
try 'signals a shim' kill -0 ${at.shim}
try 'reaches the session manager' ls /run/user/${ORDINARY}/bus
try 'writes /etc' sh -c 'echo x > /etc/muster-attack'
try 'mounts' mount -t tmpfs none /mnt
try 'traces' sh -c ': < /proc/1/mem'
try 'uncovers what is hidden' unshare --user --map-root-user --mount sh -c 'umount -l ${at.data}; umount -l ${at.folder}; umount -l ${at.folder}; cat ${at.folder}/admin.key'
try 'becomes root' unshare --user --map-root-user sh -c 'echo x > /etc/muster-attack'
${at.namespaces ? `try 'sees /tmp of the machine' ls /tmp/${at.mark}; try 'sees other processes' [ "$(ls -d /proc/[0-9]* | wc -l)" -gt 12 ]; try 'sees the data folder' [ "$(ls ${at.data} | wc -l)" -gt 1 ]; try 'sees the logs of the machine' sh -c 'ls -A /var/log | grep .'` : `try 'writes the logs of the machine' test -w /var/log`}
try 'has a descriptor that it was not given' ls /proc/self/fd/4
echo own > own-file && mkdir -p world && echo "works: $(cat own-file)"
echo temporary > "$TMPDIR/file" && echo "has a temporary folder"
echo "said on its own descriptor" > /dev/stderr
env -i PATH="$PATH" setsid sleep ${at.mark.replace(/\D/g, "")} < /dev/null > /dev/null 2>&1 &
${waits}
`

for (const scene of scenes) {
  const [runs, note] = scene.owner === ORDINARY ? [otherUsers.run, otherUsers.note] : [true, ""]
  describe.runIf(runs)(
    `SECURITY, process runtime: a hostile server of a daemon that is ${scene.name}${note}`,
    () => {
      it.live("the server cannot reach the service, other servers or the machine, and works", () =>
        Effect.gen(function* () {
          const { console, data, files, folder, run, start, up } = yield* opened(scene)
          yield* sessionOf(scene.owner)
          const daemon = yield* start()
          assert.strictEqual(daemon.level, scene.expected)
          const victim = yield* up(daemon, `echo secret > secret; ${waits}`)
          const victimPid = programOf(run(victim))
          const mark = `muster-mark-${process.pid}${Date.now() % 100_000}`
          const nap = mark.replace(/\D/g, "")
          yield* Effect.acquireRelease(
            Effect.sync(() => writeFileSync(`/tmp/${mark}`, "")),
            () => Effect.sync(() => rmSync(`/tmp/${mark}`))
          )
          const script = attack({
            folder,
            data,
            service: daemon.pid,
            shim: run(victim).pid,
            victim: victimPid,
            victimFiles: files(victim),
            victimId: victim,
            mark,
            namespaces: scene.expected !== "user"
          })
          const env = { SECRET_OF_THE_SERVER: 'it\'s "quoted"\n$HOME' }
          const id = yield* up(daemon, script, { definition: { env } })
          const output = console(id)
          assert.notInclude(output, "BREACH")
          for (const line of ["works: own", "has a temporary folder", "said on its own descriptor"]) {
            assert.include(output, line)
          }
          for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
            assert.match(output, new RegExp(`^${set}: 0+$`, "m"))
          }
          assert.match(output, /^NoNewPrivs: 1$/m)
          const uid = scene.expected === "namespaces" ? ORDINARY : stateOf(data, id).uid
          assert.match(output, new RegExp(`^Uid: ${uid} ${uid} ${uid} ${uid}$`, "m"))
          if (scene.owner === 0) {
            assert.isTrue(uid >= uids.first && uid <= uids.last, `${uid}`)
            assert.notStrictEqual(uid, stateOf(data, victim).uid)
            assert.strictEqual(readUid(programOf(run(id))), uid)
          }
          if (scene.owner === 0) {
            const foreign = [files(id), "!", "-uid", String(uid), "-o", "!", "-gid", String(uid)]
            assert.strictEqual(execFileSync("find", foreign, { encoding: "utf8" }), "")
          }
          assert.isFalse(existsSync("/etc/muster-attack"))
          assert.strictEqual(textOf(join(files(victim), "secret")), "secret\n")

          // The variables reach only the server: no parent process has them, or the descriptor that they came by.
          const above = readProcs().filter(({ pgrp }) => pgrp === run(id).pid)
          const program = programOf(run(id))
          const helpers = above.filter(({ pid, ppid }) => pid !== program && ppid !== program)
          assert.isAtLeast(helpers.length, run(id).helpers)
          for (const { pid } of helpers.slice(0, run(id).helpers)) {
            assert.notInclude(textOf(`/proc/${pid}/environ`), "SECRET_OF_THE_SERVER")
            assert.notInclude(commandOf(pid), "SECRET_OF_THE_SERVER")
            if (existsSync(`/proc/${pid}/fd/3`)) assert.strictEqual(textOf(`/proc/${pid}/fd/3`), "")
          }
          assert.include(
            textOf(`/proc/${program}/environ`),
            `SECRET_OF_THE_SERVER=${env.SECRET_OF_THE_SERVER}`
          )

          // Its remaining children end with it.
          const naps = () =>
            readProcs().filter(
              ({ pid }) => commandOf(pid).includes(nap) && commandOf(pid).startsWith("sleep")
            )
          yield* until("the stray sleeps", () => naps().length === 1)
          yield* daemon.ask(`remove ${id}`)
          assert.deepStrictEqual(naps(), [])
          yield* daemon.ask(`power ${victim} stop 10`)
          yield* until("stopped", () => stateOf(data, victim).status === "offline")
          assert.include(console(victim), "bye")
          assert.strictEqual(textOf(join(data, "servers", victim, "exit")), "0\n")
          yield* daemon.ask(`remove ${victim}`)
        }).pipe(Effect.scoped)
      )

      it.live(
        "the server survives kill -9 of its daemon, and is adopted with its exit code, signals and console",
        () =>
          Effect.gen(function* () {
            const { console, data, run, start, up } = yield* opened(scene)
            const first = yield* start()
            const stops = yield* up(first, waits)
            const crashes = yield* up(first, `${waits.replace("exit 0", "exit 7")}`)
            yield* first.kill
            const second = yield* start()
            yield* second.ask(`power ${stops} pause 0`)
            const paused = programOf(run(stops))
            yield* until("it is paused", () => readProc(paused)?.state === "T")
            yield* second.ask(`power ${stops} stop 10`)
            yield* until("it has stopped", () => stateOf(data, stops).status === "offline")
            assert.include(console(stops), "bye")
            process.kill(programOf(run(crashes)), "SIGTERM")
            yield* until("it has crashed", () => stateOf(data, crashes).status === "offline")
            assert.strictEqual(textOf(join(data, "servers", crashes, "exit")), "7\n")
            for (const id of [stops, crashes]) yield* second.ask(`remove ${id}`)
          }).pipe(Effect.scoped)
      )

      if (scene.owner === 0) {
        it.live("a server that forks without end stops at the limit of its uid, and another one runs", () =>
          Effect.gen(function* () {
            const { console, data, start, up } = yield* opened(scene)
            const daemon = yield* start()
            const bomb = `perl -e '$n = 0; while ($n < 500 && defined($pid = fork)) { $pid or sleep 600 or exit; $n++ } print "forked $n\\n"'`
            const id = yield* up(
              daemon,
              `grep processes /proc/self/limits; ${bomb}; exec perl -e '$| = 1; print "ready\\n"; sleep 600'`
            )
            const output = console(id)
            assert.match(output, new RegExp(`^Max processes +${TASKS} +${TASKS} `, "m"))
            const forked = Number(/^forked (\d+)$/m.exec(output)?.[1])
            assert.isTrue(forked > TASKS / 2 && forked < TASKS, output)
            const other = yield* up(daemon, waits)
            const { uid } = stateOf(data, id)
            assert.isAtLeast(readProcs().filter(({ pid }) => readUid(pid) === uid).length, forked)
            yield* daemon.ask(`remove ${id}`)
            assert.deepStrictEqual(
              readProcs().filter(({ pid }) => readUid(pid) === uid),
              []
            )
            yield* daemon.ask(`remove ${other}`)
          }).pipe(Effect.scoped)
        )
      }

      it.live("install scripts see their own folder only", () =>
        Effect.gen(function* () {
          const { data, files, folder, start, up } = yield* opened(scene)
          const daemon = yield* start()
          const script = `
          grep -E '^(Uid|CapEff)' /proc/self/status | tr '\\t' ' ' > "$INSTALL_DIR/said"
          cat ${folder}/admin.key >> "$INSTALL_DIR/said" 2> /dev/null
          kill -0 ${daemon.pid} 2> /dev/null && echo BREACH >> "$INSTALL_DIR/said"
          touch "$HOME/cache" "$TMPDIR/scratch" && echo works >> "$INSTALL_DIR/said"`
          const id = yield* up(daemon, waits, { install: { script }, definition: { software: "hostile" } })
          const output = textOf(join(files(id), "said"))
          assert.match(output, /^CapEff: 0+$/m)
          assert.match(output, /^works$/m)
          assert.notMatch(output, /BREACH|a secret/)
          if (scene.owner === 0) {
            const uid = Number(/^Uid: (\d+)/m.exec(output)?.[1])
            assert.strictEqual(JSON.parse(textOf(join(data, "users.json"))).software.hostile, uid)
            assert.notStrictEqual(stateOf(data, id).uid, uid)
          }
          yield* daemon.ask(`remove ${id}`)
        }).pipe(Effect.scoped)
      )
    }
  )
}

describe("SECURITY, process runtime: a checkout in a folder that other users cannot enter", () => {
  it.live("servers can read the programs of the checkout and nothing else in the folder", () =>
    Effect.gen(function* () {
      const { folder: closed } = yield* dataFolder(0)
      const [bin, lib, data] = ["tool/bin", "tool/lib", "data"].map((name) =>
        join(closed, "muster", name)
      ) as [string, string, string]
      for (const path of [bin, lib, data]) mkdirSync(path, { recursive: true })
      writeFileSync(join(lib, "word"), "hello from the checkout\n")
      writeFileSync(join(bin, "hello"), `#!/bin/sh\ncat ${lib}/word\n`, { mode: 0o755 })
      writeFileSync(join(closed, "muster", ".env"), "SECRET=1")
      const isolation = { mode: "required", uids, hidden: [data], claimsDir: join(closed, "claims") }
      const daemon = yield* daemonProcessAs(
        ["env", `PATH=${bin}:${process.env.PATH}`],
        data,
        ...["", "", "test-node", JSON.stringify(isolation)]
      )
      assert.strictEqual(daemon.level, "user+namespaces")
      const id = newId()
      const script = `hello; ls -A ${closed} ${closed}/muster; cat ${closed}/muster/.env; echo x > ${bin}/hello; ${waits}`
      yield* daemon.ask(`create ${JSON.stringify({ id, process: process_(script) })}`)
      yield* until("installed", () => stateOf(data, id).status === "offline")
      yield* daemon.ask(`power ${id} start 30`)
      yield* until("runs", () => stateOf(data, id).status === "running")
      const output = textOf(join(data, "servers", id, "console.log"))
      assert.include(output, "hello from the checkout")
      assert.notInclude(output, "admin.key")
      assert.notInclude(output, "SECRET=1")
      assert.include(textOf(join(bin, "hello")), "cat ")
      yield* daemon.ask(`remove ${id}`)
    }).pipe(Effect.scoped)
  )
})
