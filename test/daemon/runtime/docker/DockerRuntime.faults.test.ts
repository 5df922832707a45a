import { randomUUID } from "node:crypto"
import { createSocket } from "node:dgram"
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync } from "node:fs"
import { connect } from "node:net"
import { dirname, join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { unnamedFiles } from "../../../../src/daemon/files/diskUsage.ts"
import { containerName } from "../../../../src/daemon/runtime/docker/containerOptions.ts"
import { engineNote, TEST_IMAGE, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { eventually, until } from "../../../support/eventually.ts"
import { imageRegistry } from "../../../support/imageRegistry.ts"
import { newId } from "../../support.ts"
import { bench, consoleOf, folder, newNode, openRuntime, outputOf, put } from "./support.ts"

const MIB = 1024 * 1024
const echo = 'echo ready; while read -r line; do [ "$line" = stop ] && exit 0; echo "got $line"; done'
/** Prints the first existing file: cgroup v1 and v2 have them at different paths. */
const cgroup = (name: string, ...files: ReadonlyArray<string>) =>
  `for f in ${files.map((file) => `/sys/fs/cgroup/${file}`).join(" ")}; do if [ -e $f ]; then echo ${name} $(cat $f); fi; done`

/** Answers every datagram, in Perl without modules, which the image lacks. */
const udpEcho = (port: number) =>
  `perl -e 'socket(S, 2, 2, 17); bind(S, pack("Sna4x8", 2, ${port}, "\\0" x 4)); while (defined($a = recv(S, $b, 99, 0))) { send(S, "udp\\n", 0, $a) }'`

/** Sends to a UDP port repeatedly until an answer arrives. */
const askUdp = (port: number) =>
  Effect.callback<string>((resume) => {
    const socket = createSocket("udp4")
    socket.on("message", (bytes) => resume(Effect.succeed(bytes.toString())))
    const ask = () => socket.send("hello\n", port, "127.0.0.1")
    const timer = setInterval(ask, 100)
    return Effect.sync(() => {
      clearInterval(timer)
      socket.close()
    })
  }).pipe(Effect.timeout("15 seconds"), Effect.orDie)

const askTcp = (port: number) =>
  Effect.callback<string, Error>((resume) => {
    const socket = connect(port, "127.0.0.1")
    socket.on("data", (bytes) => resume(Effect.succeed(bytes.toString())))
    socket.on("error", (error) => resume(Effect.fail(error)))
    socket.on("end", () => resume(Effect.fail(new Error("nothing came"))))
    return Effect.sync(() => socket.destroy())
  }).pipe(
    Effect.orElseSucceed(() => ""),
    (once) => eventually(once)
  )

describe.runIf(withEngine)(`Docker runtime${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    it.effect("what its processes have written, and files without a name, are known on the host", () =>
      Effect.gen(function* () {
        const { start } = yield* bench()
        const { launch, run } = yield* start(
          "exec 3> big; rm big; head -c 5000000 /dev/zero >&3; sleep 60 & echo ready; wait"
        )
        yield* until("ready", () => consoleOf(launch).includes("ready"))
        const pids = yield* run.pids ?? Effect.succeed([])
        assert.isAtLeast(pids.length, 2)
        const found = yield* unnamedFiles(pids, new Set([statSync(launch.cwd).dev]))
        assert.strictEqual(found.entries, 1)
        assert.isAtLeast(found.bytes, 5_000_000)
        yield* run.kill
      }).pipe(Effect.scoped)
    )

    it.effect("limits are set in the cgroup of the container", () =>
      Effect.gen(function* () {
        const script = [
          cgroup("memory", "memory/memory.limit_in_bytes", "memory.max"),
          cgroup("swap", "memory/memory.memsw.limit_in_bytes", "memory.swap.max"),
          cgroup("cpu", "cpu/cpu.cfs_quota_us", "cpu.max"),
          cgroup("set", "cpuset/cpuset.cpus", "cpuset.cpus"),
          cgroup("pids", "pids/pids.max", "pids.max"),
          cgroup("oom", "memory/memory.oom_control"),
          cgroup("io", "blkio/blkio.weight", "io.weight")
        ].join("; ")
        const limits = {
          memory_limit: 96,
          swap: 32,
          cpu_limit: 150,
          threads: "0",
          io_weight: 300,
          oom_disabled: true
        }
        const { exit, text } = yield* outputOf(script, { limits })
        const printed = new Map(
          text.split("\n").map((line): [string, string] => {
            const blank = line.indexOf(" ")
            return [line.slice(0, blank), line.slice(blank + 1)]
          })
        )
        assert.strictEqual(exit.code, 0)
        assert.strictEqual(printed.get("memory"), String(96 * MIB))
        assert.oneOf(printed.get("swap"), [String(128 * MIB), String(32 * MIB)]) // v1 includes memory in the number.
        assert.oneOf(printed.get("cpu"), ["150000", "150000 100000"])
        assert.strictEqual(printed.get("set"), "0")
        assert.strictEqual(printed.get("pids"), "4096")
        // cgroup v2 has no such file; a kernel without io weights is logged once.
        assert.match(printed.get("oom") ?? "oom_kill_disable 1", /^oom_kill_disable 1/)
        assert.oneOf(printed.get("io"), [undefined, "300", "default 300", "default 2972"])
      }).pipe(Effect.scoped)
    )

    it.effect("the end by the OOM killer differs from other ends", () =>
      Effect.gen(function* () {
        const limits = { memory_limit: 32, swap: 0 }
        const eats = yield* outputOf("x=0123456789abcdef; while :; do x=$x$x; done", { limits })
        assert.deepStrictEqual(eats.exit, { code: 137, out_of_memory: true })
        const child = yield* outputOf("sh -c 'x=0123456789abcdef; while :; do x=$x$x; done'; exit 4", {
          limits
        })
        assert.deepStrictEqual(child.exit, { code: 4, out_of_memory: false })
        const killed = yield* outputOf("kill -9 $$", { limits })
        assert.deepStrictEqual(killed.exit, { code: 137, out_of_memory: false })
        const fails = yield* outputOf("exit 3")
        assert.deepStrictEqual(fails.exit, { code: 3, out_of_memory: false })
      }).pipe(Effect.scoped)
    )

    it.effect("ports are reachable from outside, TCP and UDP, on the allocated address only", () =>
      Effect.gen(function* () {
        const { start } = yield* bench()
        const port = 20_000 + Math.floor(Math.random() * 10_000)
        const allocations = {
          force_outgoing_ip: false,
          alias: "",
          default: { ip: "127.0.0.1", port },
          mappings: { "127.0.0.1": [port] }
        }
        const script = `${udpEcho(port)} & while :; do echo tcp | nc -l -p ${port}; done`
        const { launch, run } = yield* start(script, { allocations })
        assert.strictEqual(yield* askTcp(port), "tcp\n")
        const { docker } = yield* TestEngine
        const [own] = yield* Effect.promise(() =>
          docker.listContainers({ filters: { label: [`muster.server=${launch.server_id}`] } })
        )
        assert.sameMembers(
          own?.Ports.map(({ IP, PublicPort, Type }) => `${IP} ${PublicPort} ${Type}`) ?? [],
          [`127.0.0.1 ${port} tcp`, `127.0.0.1 ${port} udp`]
        )
        assert.strictEqual(yield* askUdp(port), "udp\n")
        yield* run.kill
      }).pipe(Effect.scoped)
    )

    it.effect("a server cannot write outside its folder, read another server's or gain privileges", () =>
      Effect.gen(function* () {
        const { launchOf, runtime, start } = yield* bench()
        const other = yield* launchOf("sleep 300")
        yield* put(join(other.cwd, "secret"), "secret")
        const script = `
          for path in / /etc /usr /home /bin /mnt /root ${other.cwd}; do
            (echo x > $path/x) 2>/dev/null && echo "wrote $path"
          done
          cat ${other.cwd}/secret; ls -a ${other.folder}; ls /home
          echo x > /home/container/own && echo x > /tmp/own && echo "wrote own"
          id -u; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status
          mount -t tmpfs none /tmp; chown 0 own; mknod dev b 8 0; su -c id; hostname evil; kill -0 -- -1
        `
        const { launch, run } = yield* start(script)
        yield* runtime.start(other)
        yield* run.ended
        const text = consoleOf(launch)
        assert.notMatch(text, /^secret$/m)
        assert.notMatch(text, /^wrote \//m)
        assert.match(text, /^wrote own$/m)
        assert.match(text, /^988$/m)
        assert.match(text, /CapEff:\s+0{16}\n/)
        assert.match(text, /CapBnd:\s+0{16}\n/)
        assert.match(text, /NoNewPrivs:\s+1\n/)
        assert.notMatch(text, /uid=0/)
        for (const refused of ["mount:", "chown:", "mknod:", "su:", "hostname:"])
          assert.include(text, refused)
        assert.strictEqual(statSync(join(launch.cwd, "own")).uid, 988)
        yield* runtime.sweep(other.server_id)
      }).pipe(Effect.scoped)
    )

    it.effect("shared folders are mounted, read-only if they are `ro`", () =>
      Effect.gen(function* () {
        const { launchOf, runtime } = yield* bench()
        const [shared, fixed] = [yield* folder, yield* folder]
        yield* put(join(fixed, "map"), "map\n")
        const launch = yield* launchOf("echo x > rw/made; cat ro/map; echo x > ro/made || echo refused", {
          shared: [
            { path: shared, read_only: false, volume: true },
            { path: fixed, read_only: true, volume: true }
          ]
        })
        symlinkSync(shared, join(launch.cwd, "rw"))
        symlinkSync(fixed, join(launch.cwd, "ro"))
        const run = yield* runtime.start(launch)
        yield* run.ended
        assert.include(consoleOf(launch), "map\n")
        assert.include(consoleOf(launch), "refused\n")
        assert.isTrue(existsSync(join(shared, "made")))
        assert.isFalse(existsSync(join(fixed, "made")))
      }).pipe(Effect.scoped)
    )

    it.effect("input and output of the console work; a server that does not read cannot block a write", () =>
      Effect.gen(function* () {
        const { start } = yield* bench()
        const { launch, run } = yield* start(`echo oops >&2; ${echo}`)
        yield* until("ready", () => consoleOf(launch).includes("ready\n"))
        for (const line of ["one", "two words", "ünï"]) yield* run.write(line)
        yield* run.write("stop")
        assert.deepStrictEqual(yield* run.ended, { code: 0, out_of_memory: false })
        const lines = consoleOf(launch).split("\n")
        assert.deepStrictEqual(
          lines.filter((line) => line.startsWith("got")),
          ["got one", "got two words", "got ünï"]
        )
        assert.include(lines, "oops")
        const late = yield* Effect.flip(run.write("late"))
        assert.deepStrictEqual([late.why, late.message], ["closed", "the console is closed"])

        const notReading = yield* start("sleep 300")
        const flood = yield* Effect.flip(Effect.forever(notReading.run.write("x".repeat(4000))))
        assert.deepStrictEqual([flood.why, flood.message], ["full", "the server does not read its console"])
        yield* notReading.run.kill
      }).pipe(Effect.scoped)
    )

    it.effect("a prompt is in the console before its line ends, and once, whichever service reads it", () =>
      Effect.gen(function* () {
        const first = yield* bench()
        const asks = "printf 'Loading\\nReady> '; while read -r l; do printf 'got %s\\n> ' $l; done"
        for (const terminal of [false, true]) {
          const { launch, run } = yield* first.start(asks, { terminal })
          yield* until("the prompt", () => consoleOf(launch) === "Loading\nReady> ")
          yield* run.write("a")
          yield* until("the answer", () => consoleOf(launch) === "Loading\nReady> got a\n> ")
          yield* run.kill
        }
        const streams = yield* first.start("printf 'out> '; read -r l; echo err >&2; read -r l; echo done")
        for (const text of ["out> ", "out> err\n", "out> err\ndone\n"]) {
          yield* until(text, () => consoleOf(streams.launch) === text)
          yield* Effect.ignore(streams.run.write("next"))
        }
        const { launch } = yield* first.start(asks)
        yield* until("the prompt", () => consoleOf(launch) === "Loading\nReady> ")
        yield* first.close
        const { runtime } = yield* openRuntime(first.node)
        const adopted = yield* runtime.adopt(launch)
        if (adopted._tag !== "Running") return assert.fail("it is not adopted")
        yield* adopted.run.write("b")
        yield* until("the answer", () => consoleOf(launch) === "Loading\nReady> got b\n> ")
        yield* adopted.run.kill
        assert.strictEqual(consoleOf(launch), "Loading\nReady> got b\n> ")
      }).pipe(Effect.scoped)
    )

    it.effect("a flood of output arrives complete and in order", () =>
      Effect.gen(function* () {
        const { text } = yield* outputOf("seq 1 20000; printf end")
        const wanted = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\n`).join("")
        assert.strictEqual(text, `${wanted}end`)
      }).pipe(Effect.scoped)
    )

    it.effect("pause, unpause, signals, kill and stats work", () =>
      Effect.gen(function* () {
        const { runtime, start } = yield* bench()
        const count = "i=0; while :; do i=$((i+1)); echo $i > n; done"
        const { launch, run } = yield* start(count, { limits: { cpu_limit: 30 } })
        const number = () => {
          const path = join(launch.cwd, "n")
          return existsSync(path) ? readFileSync(path, "utf8") : ""
        }
        yield* until("it counts", () => number() !== "")
        const usage = yield* eventually(run.usage, (found) => (found?.cpu_ms ?? 0) > 500)
        // Lower on a busy machine, never above the limit.
        assert.isBelow(usage?.cpu_ms ?? 0, 0.45 * (usage?.uptime_ms ?? 0))
        assert.isAbove(usage?.memory_bytes ?? 0, 0)
        assert.isAbove(usage?.uptime_ms ?? 0, 0)
        assert.isAtLeast(usage?.network?.rx_bytes ?? -1, 0)
        assert.isTrue(yield* run.pause)
        assert.isTrue(yield* run.pause)
        const frozenAt = number()
        const frozen = yield* run.usage
        yield* Effect.sleep(200)
        assert.strictEqual((yield* run.usage)?.cpu_ms, frozen?.cpu_ms)
        assert.strictEqual(number(), frozenAt)
        yield* run.resume
        yield* run.resume
        yield* until("it counts again", () => number() !== frozenAt)
        yield* run.pause
        yield* run.kill
        yield* run.kill
        assert.deepStrictEqual(yield* run.ended, { code: 137, out_of_memory: false })
        assert.isUndefined(yield* run.usage)
        assert.strictEqual((yield* runtime.alive).size, 0)

        const asked = yield* start("trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.05; done")
        yield* until("ready", () => consoleOf(asked.launch).includes("ready"))
        yield* asked.run.signal("SIGINT")
        assert.strictEqual((yield* asked.run.ended).code, 5)
        assert.include(consoleOf(asked.launch), "bye")
        const plain = yield* start("exec sleep 300")
        yield* plain.run.signal("SIGTERM")
        assert.strictEqual((yield* plain.run.ended).code, 143)
      }).pipe(Effect.scoped)
    )

    it.effect("a running container is adopted and its console continues; an ended one has its exit", () =>
      Effect.gen(function* () {
        const first = yield* bench()
        const counting = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i; sleep 0.02; done"
        const survivor = yield* first.start(`${counting}; ${echo}`)
        const eats = yield* first.start(
          "while [ ! -e go ]; do sleep 0.02; done; x=0123456789abcdef; while :; do x=$x$x; done",
          { limits: { memory_limit: 32, swap: 0 } }
        )
        const paused = yield* first.start("sleep 300")
        yield* paused.run.pause
        yield* until("it prints", () => consoleOf(survivor.launch).includes("line 5\n"))
        yield* first.close
        yield* put(join(eats.launch.cwd, "go"), "")
        const { docker } = yield* TestEngine
        yield* Effect.promise(() =>
          docker.listContainers({
            filters: { label: [`muster.node=${first.node}`], status: ["running", "paused"] }
          })
        ).pipe(Effect.repeat({ until: (found) => found.length === 2 }))

        const { runtime } = yield* openRuntime(first.node)
        assert.strictEqual((yield* runtime.adopt(paused.launch))._tag, "Running")
        const stale = yield* runtime.adopt({ ...(yield* first.launchOf("true")), token: "another" })
        assert.deepStrictEqual(stale, { _tag: "NeverBegan" })
        const oom = yield* runtime.adopt(eats.launch)
        assert.deepStrictEqual(oom, { _tag: "Ended", exit: { code: 137, out_of_memory: true } })
        // Repeated calls return the same exit.
        assert.deepStrictEqual(yield* runtime.adopt(eats.launch), oom)
        const adopted = yield* runtime.adopt(survivor.launch)
        if (adopted._tag !== "Running") return assert.fail("it is not adopted")
        yield* until("its console continues", () => consoleOf(survivor.launch).includes("ready\n"))
        yield* adopted.run.write("hello")
        yield* adopted.run.write("stop")
        assert.strictEqual((yield* adopted.run.ended).code, 0)
        const lines = Array.from({ length: 60 }, (_, index) => `line ${index + 1}\n`).join("")
        assert.strictEqual(consoleOf(survivor.launch), `${lines}ready\ngot hello\n`)
        yield* adopted.run.kill
        yield* runtime.sweep(paused.launch.server_id)
        assert.deepStrictEqual([...(yield* runtime.alive)], [])
      }).pipe(Effect.scoped)
    )

    it.effect("output from before an unwatched end is in the console", () =>
      Effect.gen(function* () {
        const first = yield* bench()
        const ends = yield* first.start("while [ ! -e go ]; do sleep 0.02; done; echo last words; exit 9")
        yield* first.close
        yield* put(join(ends.launch.cwd, "go"), "")
        const { runtime } = yield* openRuntime(first.node)
        const adopted = yield* runtime.adopt(ends.launch)
        if (adopted._tag === "NeverBegan") return assert.fail("it began")
        const exit = adopted._tag === "Running" ? yield* adopted.run.ended : adopted.exit
        assert.deepStrictEqual(exit, { code: 9, out_of_memory: false })
        assert.strictEqual(consoleOf(ends.launch), "last words\n")
      }).pipe(Effect.scoped)
    )

    it.effect("sweep removes the containers of its own servers and no others", () =>
      Effect.gen(function* () {
        const { docker } = yield* TestEngine
        const { node, runtime, start } = yield* bench()
        const { launch } = yield* start("sleep 300")
        const other = newNode()
        const foreign = [
          {},
          { "muster.node": other, "muster.server": launch.server_id },
          { "muster.server": launch.server_id },
          { "muster.node": node },
          { "muster.node": `${node}x`, "muster.server": launch.server_id },
          // An image may set all of these labels.
          { "muster.node": node, "muster.server": launch.server_id, "muster.run": launch.token }
        ]
        const ids = yield* Effect.forEach(foreign, (Labels) =>
          Effect.acquireRelease(
            Effect.promise(() =>
              docker
                .createContainer({ Image: TEST_IMAGE, Cmd: ["sleep", "300"], Labels })
                .then((container) => container.start().then(() => container.id))
            ),
            (id) => Effect.promise(() => docker.getContainer(id).remove({ force: true }))
          )
        )
        assert.deepStrictEqual([...(yield* runtime.alive)], [launch.server_id])
        yield* runtime.sweep(launch.server_id)
        yield* runtime.sweep(launch.server_id)
        assert.deepStrictEqual([...(yield* runtime.alive)], [])
        for (const id of ids) {
          const { State } = yield* Effect.promise(() => docker.getContainer(id).inspect())
          assert.isTrue(State.Running)
        }
      }).pipe(Effect.scoped)
    )

    it.effect("a job runs in a container with its folders, and is removed with its scope", () =>
      Effect.gen(function* () {
        const { runtime } = yield* bench()
        const aside = yield* folder
        const base = join(aside, "base")
        mkdirSync(base)
        yield* put(
          join(aside, "script"),
          'echo "in $PWD $INSTALL_DIR"; read -r l; echo "got $l" > made; exit 6'
        )
        let output = ""
        const scope = yield* Scope.make()
        const job = yield* Scope.provide(
          runtime.job({
            name: `install:${randomUUID()}`,
            folder: aside,
            cwd: base,
            scratch: aside,
            argv: ["sh", join(aside, "script")],
            env: { INSTALL_DIR: base },
            onOutput: (bytes) => {
              output += Buffer.from(bytes).toString()
            },
            choice: { image: TEST_IMAGE, runtimes: ["docker"] }
          }),
          scope
        )
        yield* job.write("hello")
        assert.deepStrictEqual(yield* job.ended, { code: 6, out_of_memory: false })
        assert.strictEqual(output, "in /home/container /home/container\n")
        assert.strictEqual(readFileSync(join(base, "made"), "utf8"), "got hello\n")
        assert.strictEqual((yield* runtime.alive).size, 1)
        yield* Scope.close(scope, Exit.void)
        assert.strictEqual((yield* runtime.alive).size, 0)
      }).pipe(Effect.scoped)
    )

    it.effect("a missing image is handled by the policy, and an error gives the cause", () =>
      Effect.gen(function* () {
        const never = yield* bench({ pull: "never" })
        const absent = { image: "muster-test/absent:1", runtimes: ["docker"] } as const
        const refused = yield* Effect.flip(never.runtime.ensureImage(absent, () => undefined))
        assert.include(refused.message, "image muster-test/absent:1 is not on this node")
        const missing = yield* bench({ pull: "if-not-present" })
        let log = ""
        const onOutput = (bytes: Uint8Array) => {
          log += Buffer.from(bytes).toString()
        }
        // Port 9 refuses connections.
        const nowhere = "127.0.0.1:9/muster/absent:1"
        const failed = yield* Effect.flip(
          missing.runtime.ensureImage({ ...absent, image: nowhere }, onOutput)
        )
        assert.include(failed.message, `image ${nowhere} cannot be pulled: `)
        assert.include(log, `pulling ${nowhere}\n`)
        // A start does not wait for the registry; it ends as `never_began`.
        const launch = yield* missing.launchOf("true", { image: nowhere })
        const ended = yield* Effect.flatMap(missing.runtime.start(launch), (run) => run.ended)
        assert.isTrue(ended.never_began)
        assert.match(consoleOf(launch), /^\[pulling 127.*\n\[cannot be started: .* cannot be pulled: /)
        yield* missing.runtime.ensureImage({ ...absent, image: TEST_IMAGE }, onOutput)
        for (const image of ["../../containers/x", "a b", "-v", "a//b", "a/../b", "a?x=1", "a%2fb"]) {
          const strange = yield* Effect.flip(missing.runtime.ensureImage({ ...absent, image }, onOutput))
          assert.include(strange.message, "not an image reference")
        }
        const none = yield* Effect.flip(missing.runtime.kindFor({ image: "", runtimes: ["docker"] }))
        assert.include(none.message, "no image")
      }).pipe(Effect.scoped)
    )

    it.effect("an image is pulled by its policy, with progress in words", () =>
      Effect.gen(function* () {
        const { docker } = yield* TestEngine
        const registry = yield* imageRegistry()
        const { image, pulls } = registry
        yield* Effect.addFinalizer(() =>
          Effect.ignore(Effect.tryPromise(() => docker.getImage(image).remove({ force: true })))
        )
        const choice = { image, runtimes: ["docker"] } as const
        let log = ""
        const onOutput = (bytes: Uint8Array) => {
          log += Buffer.from(bytes).toString()
        }
        const idOf = Effect.promise(() =>
          docker
            .getImage(image)
            .inspect()
            .then(({ Id }) => Id)
        )

        const { runtime } = yield* bench({ pull: "if-not-present" })
        yield* runtime.ensureImage(choice, onOutput)
        const first = yield* idOf
        assert.match(log, /^pulling 127\.0\.0\.1:\d+\/test\/image:1\n/)
        assert.include(log, "Pull complete\n")
        const asked = pulls()
        yield* runtime.ensureImage(choice, onOutput)
        assert.strictEqual(pulls(), asked)

        registry.publish("second")
        const always = yield* bench({ pull: "always" })
        yield* always.runtime.ensureImage(choice, onOutput)
        assert.notStrictEqual(yield* idOf, first)

        // Without its registry an installation fails; an installed server starts.
        yield* registry.close
        const failed = yield* Effect.flip(always.runtime.ensureImage(choice, onOutput))
        assert.include(failed.message, `image ${image} cannot be pulled: `)
        const launch = yield* always.launchOf("cat /made", { image })
        const run = yield* always.runtime.start(launch)
        assert.strictEqual((yield* run.ended).code, 0)
        assert.match(consoleOf(launch), /the local image is used\]\nsecond$/)
        yield* run.kill
      }).pipe(Effect.scoped)
    )

    it.effect("a container that cannot start is an error with the cause, and is removed", () =>
      Effect.gen(function* () {
        const { launchOf, runtime } = yield* bench()
        const reasonOf = (more: Parameters<typeof launchOf>[1]) =>
          Effect.flatMap(launchOf("true", more), (launch) => Effect.flip(runtime.start(launch)))
        assert.include((yield* reasonOf({ limits: { memory_limit: 1 } })).message, "memory limit")
        assert.include((yield* reasonOf({ limits: { threads: "900" } })).message, "CPUs")
        const allocations = {
          force_outgoing_ip: false,
          alias: "",
          default: { ip: "203.0.113.9", port: 25565 },
          mappings: { "203.0.113.9": [25565] }
        }
        assert.include((yield* reasonOf({ allocations })).message, "203.0.113.9")
        assert.strictEqual((yield* runtime.alive).size, 0)
      }).pipe(Effect.scoped)
    )

    it.effect("a name that is taken by another container is refused; that container is unchanged", () =>
      Effect.gen(function* () {
        const { docker } = yield* TestEngine
        const { launchOf, runtime } = yield* bench()
        const launch = yield* launchOf("true")
        const name = containerName(launch.server_id, launch.token)
        const theirs = yield* Effect.acquireRelease(
          Effect.promise(() =>
            docker
              .createContainer({ name, Image: TEST_IMAGE, Cmd: ["sleep", "300"] })
              .then((container) => container.start().then(() => container))
          ),
          (container) => Effect.promise(() => container.remove({ force: true }))
        )
        const refused = yield* Effect.flip(runtime.start(launch))
        assert.include(refused.message, "already in use")
        yield* runtime.sweep(launch.server_id)
        assert.isTrue((yield* Effect.promise(() => theirs.inspect())).State.Running)
      }).pipe(Effect.scoped)
    )

    it.effect("mounts and variables that would reach beyond the container are refused", () =>
      Effect.gen(function* () {
        const { socket } = yield* TestEngine
        const { launchOf, runtime } = yield* bench()
        const mounted = (path: string) => ({ shared: [{ path, read_only: true, volume: false }] })
        const reasonOf = (more: Parameters<typeof launchOf>[1]) =>
          Effect.flatMap(launchOf("true", more), (launch) =>
            Effect.map(Effect.flip(runtime.start(launch)), (error) => error.message)
          )
        for (const path of [socket, dirname(socket), "/"]) {
          assert.include(yield* reasonOf(mounted(path)), "the socket of the Docker engine is in it")
        }
        assert.include(yield* reasonOf(mounted("/etc")), "/etc is not mounted")
        assert.include(yield* reasonOf({ env: { "A=B": "c" } }), "not the name of a variable")
        assert.include(yield* reasonOf({ env: { A: "b\0c" } }), "NUL")
        assert.strictEqual((yield* runtime.alive).size, 0)
      }).pipe(Effect.scoped)
    )

    it.effect("without an engine every start is an error, and the node does not offer docker", () =>
      Effect.gen(function* () {
        const root = yield* folder
        const socket = join(root, "none.sock")
        const { launchOf, runtime } = yield* bench({ socket })
        assert.deepStrictEqual((yield* runtime.offer).kinds, [])
        const launch = yield* launchOf("true")
        const failed = yield* Effect.flip(runtime.start(launch))
        assert.include(failed.message, `the Docker engine does not answer at ${socket}: no such socket`)
        assert.strictEqual((yield* runtime.alive).size, 0)
        yield* runtime.sweep(newId())
      }).pipe(Effect.scoped)
    )
  })
})
