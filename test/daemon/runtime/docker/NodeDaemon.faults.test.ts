import { spawn } from "node:child_process"
import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { RunRule } from "../../../../src/contract/domain/RunRule.ts"
import { containerName } from "../../../../src/daemon/runtime/docker/containerOptions.ts"
import { engineNote, TEST_IMAGE, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { until } from "../../../support/eventually.ts"
import { freePorts, portHeld } from "../../../support/ports.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { echoServer, harness, newId, openDaemon, recorder, type SpecOptions } from "../../support.ts"
import { cleanNode, newNode } from "./support.ts"

const script = join(import.meta.dirname, "../..", "daemonProcess.ts")
const inDocker = { image: TEST_IMAGE, runtimes: ["docker" as const] }

/** These servers run concurrently and need no ports. */
const noPorts = { mappings: {} }

const dockerHarness = Effect.gen(function* () {
  const { socket } = yield* TestEngine
  const node_id = newNode()
  yield* cleanNode(node_id)
  const made = yield* harness({ node_id, docker: { socket, pull: "never" } })
  return {
    ...made,
    create: (options: SpecOptions) => made.create({ allocations: noPorts, ...options }),
    running: (options: SpecOptions) => made.running({ allocations: noPorts, ...options })
  }
})

/** Returns the containers of a node in any state. */
const containersOf = Effect.fnUntraced(function* (node: string) {
  const { docker } = yield* TestEngine
  return yield* Effect.promise(() =>
    docker.listContainers({ all: true, filters: { label: [`muster.node=${node}`] } })
  )
})

describe.runIf(withEngine)(`a node with the Docker runtime${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect("a container over its memory limit is the crash `out of memory`, 137", () =>
      Effect.gen(function* () {
        const { crashes, daemon, lastStatus, running } = yield* dockerHarness
        const id = yield* running({
          process: {
            invocation: `sh -c 'echo ready; read -r go; x=0123456789abcdef; while :; do x=$x$x; done'`
          },
          definition: { ...inDocker, limits: { memory_limit: 32, swap: 0 } }
        })
        yield* daemon.commands(id, ["go"])
        yield* until("offline", () => lastStatus(id) === "offline")
        const [crash] = crashes(id)
        assert.deepInclude(crash, { reason: "out of memory", exit_code: 137 })
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a published port that another program has is replaced; a restart keeps the server's own port",
      () =>
        Effect.gen(function* () {
          const { daemon, lastStatus, node, notes, installed } = yield* dockerHarness
          const ip = "127.0.0.1"
          const [port, other] = [yield* freePorts(1), yield* freePorts(1)]
          const allocations = (port: number) => ({ default: { ip, port }, mappings: { [ip]: [port] } })
          const questions: Array<unknown> = []
          notes.replacePorts = (_, taken) => {
            questions.push(taken)
            return Effect.succeed({ force_outgoing_ip: false, alias: "", ...allocations(other) })
          }
          const id = yield* installed({ allocations: allocations(port), definition: inDocker })
          yield* portHeld(ip, port, "TCP")
          const publishes = Effect.gen(function* () {
            yield* until("running", () => lastStatus(id) === "running")
            const [container] = yield* containersOf(node.node_id)
            assert.isTrue(container?.Ports.some(({ IP, PublicPort }) => IP === ip && PublicPort === other))
          })
          yield* daemon.power(id, "start", 30)
          yield* publishes
          const { length } = notes.reports
          yield* daemon.power(id, "restart", 30)
          yield* until("restarted", () => notes.reports.length >= length + 4)
          yield* publishes
          assert.deepStrictEqual(questions, [[{ ip, port }]])
        }).pipe(Effect.scoped)
    )

    it.effect("a server has every status; console, stats and stop use its container", () =>
      Effect.gen(function* () {
        const { daemon, lastStatus, node, running, statuses } = yield* dockerHarness
        const id = yield* running({ definition: { ...inDocker, limits: { memory_limit: 64 } } })
        assert.strictEqual((yield* containersOf(node.node_id)).length, 1)
        yield* daemon.commands(id, ["hello"])
        const logs = Effect.map(daemon.logs(id, { page: 1, per_page: 10 }), (page) => page.items)
        yield* Effect.repeat(logs, { until: (lines) => lines.includes("got hello") })
        const stats = yield* daemon.stats(id, { update_disk_usage: false })
        assert.isAbove(stats.memory_bytes ?? 0, 0)
        assert.isAbove(stats.uptime ?? 0, 0)
        for (const action of ["start", "stop"] as const) {
          yield* daemon.power(id, "pause", 0)
          yield* until("paused", () => lastStatus(id) === "paused")
          yield* daemon.power(id, action, 30)
        }
        yield* until("offline", () => lastStatus(id) === "offline")
        assert.deepStrictEqual(statuses(id).slice(-6), [
          "paused",
          "running",
          "paused",
          "running",
          "stopping",
          "offline"
        ])
        assert.deepStrictEqual(yield* containersOf(node.node_id), [])
      }).pipe(Effect.scoped)
    )

    it.effect("a prompt is the online signal", () =>
      Effect.gen(function* () {
        const { daemon, running } = yield* dockerHarness
        const id = yield* running({
          process: {
            invocation: `sh -c "printf 'Loading\\nReady on port'; read -r l"`,
            online_signal: "Ready on port"
          },
          definition: inDocker
        })
        const { items } = yield* daemon.logs(id, { page: 1, per_page: 10 })
        assert.deepStrictEqual(items, ["Loading", "Ready on port"])
      }).pipe(Effect.scoped)
    )

    it.effect("the container of an orphan is removed, and its files are kept", () =>
      Effect.gen(function* () {
        const { dataDir, node, notes, running } = yield* dockerHarness
        const id = yield* running({
          process: { invocation: `sh -c 'echo a castle > level; echo ready; read -r l; echo $l > last'` },
          definition: inDocker
        })
        notes.unknown = [{ id }]
        notes.forgotten = true
        yield* until("it is kept", () => existsSync(join(dataDir, "lost", `${id}.json`)))
        const files = join(dataDir, "lost", id, "files")
        assert.strictEqual(readFileSync(join(files, "level"), "utf8"), "a castle\n")
        assert.strictEqual(readFileSync(join(files, "last"), "utf8"), "stop\n")
        assert.isFalse(existsSync(join(dataDir, "servers", id)))
        assert.deepStrictEqual(yield* containersOf(node.node_id), [])
      }).pipe(Effect.scoped)
    )

    it.effect(
      "install script and warm-up run in containers, in /home/container; instances have their files",
      () =>
        Effect.gen(function* () {
          const { daemon, dataDir, lastInstall, node, running } = yield* dockerHarness
          const id = yield* running({
            process: {
              invocation: `sh -c 'touch started; cat conf; echo ready; read -r l'`,
              stop_command: "stop"
            },
            install: {
              script: `read x || echo at its end; echo "at $PWD for $SOFTWARE_ID $VERSION in $INSTALL_DIR"; echo installed > file; [ ! -e /work ] && id -u`,
              warmup: true,
              post_warmup_script: "[ -e started ] && rm started && echo after > after"
            },
            definition: {
              ...inDocker,
              configs: { conf: { parser: "properties", find: { ip: "{{server.build.default.ip}}" } } }
            }
          })
          const logs = yield* daemon.installLogs(id, { page: 1, per_page: 50 })
          assert.include(logs.items, "at /home/container for echo 1.0 in /home/container")
          assert.includeMembers([...logs.items], ["988", "at its end"])
          assert.deepInclude(lastInstall(id), { phase: "ready", exit_code: 0 })
          const files = join(dataDir, "servers", id, "files")
          assert.strictEqual(readFileSync(join(files, "file"), "utf8"), "installed\n")
          assert.isTrue(existsSync(join(files, "after")))
          // A container has its own address.
          assert.match(readFileSync(join(files, "conf"), "utf8"), /^ip=0\.0\.0\.0$/m)
          assert.strictEqual((yield* containersOf(node.node_id)).length, 1)
        }).pipe(Effect.scoped)
    )

    it.effect("a missing image fails the installation, also if the base exists", () =>
      Effect.gen(function* () {
        const { create, lastInstall } = yield* dockerHarness
        const install = { script: "true" }
        const first = yield* create({ install, definition: inDocker })
        yield* until("ready", () => lastInstall(first)?.phase === "ready")
        const second = yield* create({ install, definition: { ...inDocker, image: "muster-test/absent:1" } })
        yield* until("failed", () => lastInstall(second)?.phase === "failed")
        assert.match(
          lastInstall(second)?.failure_reason ?? "",
          /^image muster-test\/absent:1 is not on this node, and its pull policy is never \(node test-.*\): load the image there, /
        )
      }).pipe(Effect.scoped)
    )

    it.effect("an install that fails or takes too long removes its container and names the cause", () =>
      Effect.gen(function* () {
        const { create, lastInstall, node } = yield* dockerHarness
        const failing = (software: string, install: SpecOptions["install"], image = TEST_IMAGE) =>
          Effect.gen(function* () {
            const id = yield* create({
              install: install ?? null,
              definition: { ...inDocker, software, image }
            })
            yield* until("failed", () => lastInstall(id)?.phase === "failed")
            return lastInstall(id)
          })
        assert.deepInclude(yield* failing("fails", { script: "exit 7" }), { exit_code: 7 })
        const slow = yield* failing("slow", { script: "sleep 300", timeout: 1 })
        assert.match(slow?.failure_reason ?? "", /^install script timed out after 1 s \(node /)
        const absent = yield* failing("absent", { script: "true" }, "muster-test/absent:1")
        assert.include(absent?.failure_reason ?? "", "image muster-test/absent:1 is not on this node")
        const none = yield* failing("none", { script: "true" }, "")
        assert.include(none?.failure_reason ?? "", "no image")
        assert.deepStrictEqual(yield* containersOf(node.node_id), [])
      }).pipe(Effect.scoped)
    )

    it.effect(
      "docker is offered while the engine answers; without it, software that allows `process` runs as one",
      () =>
        Effect.gen(function* () {
          const { socket } = yield* TestEngine
          const dataDir = yield* temporaryFolder
          const notes = recorder()
          const node_id = newNode()
          yield* cleanNode(node_id)
          const link = join(dataDir, "engine.sock")
          const { daemon } = yield* openDaemon(dataDir, notes, {
            node_id,
            docker: { socket: link, pull: "never" }
          })
          const offered = () => notes.registrations.at(-1)?.runtimes.join()
          yield* until("processes only", () => offered() === "process")
          symlinkSync(socket, link)
          yield* until("both", () => offered() === "docker,process")
          assert.isDefined(daemon)
        }).pipe(Effect.scoped)
    )

    it.effect("with both runtimes, software with an image runs in containers, the rest as processes", () =>
      Effect.gen(function* () {
        const { daemon, node, running } = yield* dockerHarness
        const both = ["docker" as const, "process" as const]
        const contained = yield* running({ definition: { image: TEST_IMAGE, runtimes: both } })
        const plain = yield* running({ definition: { image: "", runtimes: both } })
        const found = yield* containersOf(node.node_id)
        assert.deepStrictEqual(
          found.map(({ Labels }) => Labels["muster.server"]),
          [contained]
        )
        for (const id of [contained, plain]) yield* daemon.commands(id, ["hello"])
      }).pipe(Effect.scoped)
    )

    it.effect("after kill -9 of the daemon containers are adopted, ends reported and orphans removed", () =>
      Effect.gen(function* () {
        const { docker, socket } = yield* TestEngine
        const dataDir = yield* temporaryFolder
        const node_id = newNode()
        yield* cleanNode(node_id)
        const child = yield* Effect.acquireRelease(
          Effect.sync(() =>
            spawn(process.execPath, [script, dataDir, "", socket, node_id], {
              stdio: ["pipe", "pipe", "inherit"]
            })
          ),
          (daemon) => Effect.sync(() => daemon.kill("SIGKILL"))
        )
        let output = ""
        child.stdout.on("data", (bytes) => {
          output += String(bytes)
        })
        yield* until("the daemon is up", () => output.startsWith("up "))
        const stateOf = (id: string) => {
          const path = join(dataDir, "servers", id, "server.json")
          return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {}
        }
        const up = Effect.fnUntraced(function* (invocation: string, run: RunRule = "unless_stopped") {
          const id = newId()
          const options: SpecOptions = {
            id,
            allocations: noPorts,
            process: { invocation },
            definition: { ...inDocker, run }
          }
          child.stdin.write(`create ${JSON.stringify(options)}\n`)
          yield* until("installed", () => stateOf(id).status === "offline")
          child.stdin.write(`power ${id} start 30\n`)
          yield* until("running", () => stateOf(id).status === "running" && stateOf(id).reports.length === 0)
          return id
        })
        const survivor = yield* up(echoServer)
        const ends = yield* up(`sh -c 'echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 9'`, "manual")
        child.kill("SIGKILL")
        yield* until("the daemon is dead", () => child.signalCode !== null)
        writeFileSync(join(dataDir, "servers", ends, "files", "go"), "")
        // A container of an unknown server.
        const [gone, run] = [newId(), "0123456789"]
        const orphan = yield* Effect.promise(() =>
          docker.createContainer({
            name: containerName(gone, run),
            Image: TEST_IMAGE,
            Cmd: ["sleep", "300"],
            Labels: { "muster.node": node_id, "muster.server": gone, "muster.run": run }
          })
        )
        yield* Effect.promise(() => orphan.start())
        const before = (yield* containersOf(node_id)).find(
          ({ Labels }) => Labels["muster.server"] === survivor
        )

        const notes = recorder()
        const { daemon } = yield* openDaemon(dataDir, notes, {
          node_id,
          docker: { socket, pull: "never" }
        })
        const reportsOf = (id: string) =>
          notes.reports.flatMap((report) =>
            report.server_id !== id ? [] : report.type === "crash" ? [report.crash.reason] : [report.type]
          )
        yield* until("its end is reported", () => reportsOf(ends).length === 2)
        assert.deepStrictEqual(reportsOf(ends), ["exit code 9", "status"])
        assert.strictEqual(yield* daemon.status(survivor), "running")
        const after = (yield* containersOf(node_id)).map(({ Id }) => Id)
        assert.deepStrictEqual(after, before === undefined ? [] : [before.Id])
        yield* daemon.commands(survivor, ["hello"])
        const logs = Effect.map(daemon.logs(survivor, { page: 1, per_page: 10 }), (page) => page.items)
        yield* Effect.repeat(logs, { until: (lines) => lines.includes("got hello") })
        assert.deepStrictEqual(yield* logs, ["ready", "got hello"])
        yield* daemon.remove(survivor)
        assert.deepStrictEqual(yield* containersOf(node_id), [])
      }).pipe(Effect.scoped)
    )
  })
})
