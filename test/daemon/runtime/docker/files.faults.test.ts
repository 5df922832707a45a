import { readdirSync, readFileSync, statSync } from "node:fs"
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
const shell = `sh -c 'echo ready; while read -r line; do [ "$line" = stop ] && exit 0; sh -c "$line" && echo "done: $line" || echo "failed: $line"; done'`

describe.runIf(withEngine)(`blueprints, instances in containers${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    for (const mounts of [true, false]) {
      it.effect(
        `volumes and mounts are visible, read-only if they are ro; ${mounts ? "" : "not "}mounted`,
        () =>
          Effect.gen(function* () {
            const { socket } = yield* TestEngine
            const node_id = newNode()
            yield* cleanNode(node_id)
            const dataDir = yield* temporaryFolder
            for (const name of ["volumes/world", "volumes/shared", "volumes/lib", "host/maps"]) {
              write(join(dataDir, name), { "sub/file": name, "sub/other": name })
            }
            const allowedMounts = [join(dataDir, "host")]
            const options = { node_id, docker: { socket, pull: "never" as const }, mounts, allowedMounts }
            const { daemon, lastStatus, running } = yield* harness(options, dataDir)
            const id = yield* running({
              process: { invocation: shell },
              install: { script: "echo base > base" },
              allocations: { mappings: {} },
              definition: {
                image: TEST_IMAGE,
                runtimes: ["docker"],
                volumes: [
                  { name: "w", source: "world", target: "in/world", mode: "cow" },
                  { name: "s", source: "shared", target: "/shared", mode: "rw" },
                  { name: "l", source: "lib", target: "/home/container/lib", mode: "ro" }
                ],
                mounts: [{ source: join(dataDir, "host/maps"), target: "maps", mode: "ro" }]
              }
            })
            const commands = [
              "grep -q base base && echo mine > base",
              "grep -q volumes/world in/world/sub/file && echo mine > in/world/sub/file",
              "grep -q volumes/shared shared/sub/file && echo mine > shared/new && echo mine > shared/sub/other",
              "grep -q volumes/lib lib/sub/file && ! touch lib/new && ! rm lib/sub/file",
              "grep -q host/maps maps/sub/file && ! touch maps/new && ! rm maps/sub/file"
            ]
            for (const line of commands) yield* daemon.commands(id, [line])
            const logs = Effect.map(daemon.logs(id, { page: 1, per_page: 50 }), (page) => page.items)
            const results = yield* Effect.repeat(logs, {
              until: (lines) =>
                lines.filter((line) => /^(done|failed): /.test(line)).length === commands.length
            })
            assert.deepStrictEqual(
              results.filter((line) => /^(done|failed): /.test(line)),
              commands.map((line) => `done: ${line}`)
            )
            const text = (name: string) => readFileSync(join(dataDir, name), "utf8")
            assert.strictEqual(text("volumes/world/sub/file"), "volumes/world")
            assert.strictEqual(text("volumes/shared/new"), "mine\n")
            assert.strictEqual(text("volumes/shared/sub/other"), "mine\n")
            assert.strictEqual(text("volumes/lib/sub/file"), "volumes/lib")
            // Files of the host keep their owner.
            for (const name of ["host/maps", "host/maps/sub", "volumes/lib/sub/file"]) {
              assert.strictEqual(statSync(join(dataDir, name)).uid, process.getuid?.(), name)
            }
            // A chown under an overlay would copy every file.
            if (mounts) {
              const upper = join(dataDir, "servers", id, "tree/over.0/upper")
              assert.deepStrictEqual(readdirSync(join(upper, "sub")), ["file"])
            }
            yield* daemon.power(id, "stop", 30)
            yield* until("offline", () => lastStatus(id) === "offline")
            yield* daemon.power(id, "start", 30)
            yield* until("it runs again", () => lastStatus(id) === "running")
            yield* daemon.commands(id, ["grep -q mine in/world/sub/file && grep -q mine base"])
            yield* Effect.repeat(logs, {
              until: (lines) => lines.includes("done: grep -q mine in/world/sub/file && grep -q mine base")
            })
            yield* daemon.remove(id)
            assert.strictEqual(text("host/maps/sub/file"), "host/maps")
          }).pipe(Effect.scoped)
      )
    }
  })
})
