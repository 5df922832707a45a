import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { engineNote, TEST_IMAGE, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { until } from "../../../support/eventually.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { write } from "../../files/scene.ts"
import { harness } from "../../support.ts"
import { cleanNode, newNode } from "./support.ts"

/** Executes each line and prints its exit code. */
const shell = `sh -c 'echo ready; while read -r line; do [ "$line" = stop ] && exit 0; sh -c "$line" && echo "done: $line" || echo "failed: $line"; done' {{SERVER_MEMORY}}`

describe.runIf(withEngine)(`blueprints, files for SLS in containers${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    for (const mounts of [true, false]) {
      it.effect(
        `a container has mounts at their absolute targets and at its home, and \`STARTUP\`; ${mounts ? "" : "not "}mounted`,
        () =>
          Effect.gen(function* () {
            const { socket } = yield* TestEngine
            const node_id = newNode()
            yield* cleanNode(node_id)
            const dataDir = yield* temporaryFolder
            for (const name of ["host/home/world", "host/data", "host/etc"]) {
              write(join(dataDir, name), { file: name })
            }
            const host = join(dataDir, "host")
            const options = {
              node_id,
              // A local image is never pulled, whatever the policy.
              docker: { socket, pull: "always" as const },
              mounts,
              allowedMounts: [host]
            }
            const { daemon, lastStatus, running } = yield* harness(options, dataDir)
            const id = yield* running({
              process: { invocation: shell },
              install: { script: 'echo "$MODE $SERVER_MEMORY $BUILD_NUMBER" > base; chmod 666 base' },
              allocations: { mappings: {} },
              definition: {
                image: `~${TEST_IMAGE}`,
                runtimes: ["docker"],
                limits: { memory_limit: 64 },
                env: { MODE: "calm", motd: "hello" },
                mounts: [
                  { source: join(host, "home"), target: "/home/container", mode: "ro" },
                  { source: join(host, "data"), target: "/data", mode: "ro" },
                  { source: join(host, "etc"), target: "/etc", mode: "ro" }
                ]
              }
            })
            const commands = [
              "grep -qx 'calm 64 latest' base",
              "grep -q host/home world/file && ! touch world/new && ! rm world/file",
              "grep -q host/data data/file && ! touch data/new",
              "grep -q host/data /data/file && ! touch /data/new && ! rm /data/file",
              "grep -q host/etc etc/file && [ ! -e /etc/file ]",
              "touch own && [ $MOTD = hello ]",
              'case $STARTUP in "sh -c"*" 64") ;; *) false;; esac'
            ]
            const logs = Effect.map(daemon.logs(id, { page: 1, per_page: 50 }), (page) => page.items)
            const ran = (lines: ReadonlyArray<string>) =>
              lines.filter((line) => /^(done|failed): /.test(line))
            for (const line of commands) yield* daemon.commands(id, [line])
            const results = yield* Effect.repeat(logs, {
              until: (lines) => ran(lines).length === commands.length
            })
            assert.deepStrictEqual(
              ran(results),
              commands.map((line) => `done: ${line}`)
            )
            yield* daemon.power(id, "stop", 30)
            yield* until("offline", () => lastStatus(id) === "offline")
            yield* daemon.remove(id)
            assert.strictEqual(readFileSync(join(host, "data/file"), "utf8"), "host/data")
            assert.isFalse(existsSync(join(host, "home/own")))
          }).pipe(Effect.scoped)
      )
    }

    it.effect("a local image that is not on the node is not pulled", () =>
      Effect.gen(function* () {
        const { socket } = yield* TestEngine
        const node_id = newNode()
        yield* cleanNode(node_id)
        const { create, lastInstall } = yield* harness({
          node_id,
          docker: { socket, pull: "always" as const }
        })
        const id = yield* create({ definition: { image: "~example/none:1", runtimes: ["docker"] } })
        yield* until("the installation fails", () => lastInstall(id)?.phase === "failed")
        assert.match(
          lastInstall(id)?.failure_reason ?? "",
          /^image example\/none:1 is not on this node, and the ~ before its name means that it is never pulled/
        )
      }).pipe(Effect.scoped)
    )
  })
})
