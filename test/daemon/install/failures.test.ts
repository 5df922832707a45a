import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Copy, Mount, Volume } from "../../../src/contract/domain/Blueprint.ts"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import {
  INSTALL_FAILED_HINT,
  installFailure,
  NEW_DEFINITION
} from "../../../src/contract/domain/InstallState.ts"
import { InstallFailed, installFailed, textOfFailure } from "../../../src/daemon/files/InstallFailed.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { write } from "../files/scene.ts"
import { harness, openDaemon, recorder, specOf } from "../support.ts"

const place = { node_id: NodeId.make("n1"), dataDir: "/srv/muster/node", arriving: false }

describe("spec 3.11: installation: failure_reason", () => {
  it("the reason names the action, the cause, the node and the next step", () => {
    const text = (error: Parameters<typeof installFailed>[0], arriving = false) =>
      textOfFailure(installFailed(error), { ...place, arriving })
    assert.strictEqual(
      text({ code: "EACCES", message: "copy files/a: permission denied" }),
      "copy files/a: permission denied (node n1): give the user of the daemon access to it, then reinstall"
    )
    assert.strictEqual(
      text({ code: "ENOSPC", message: "copy volumes/w/r.0: disk full" }, true),
      "copy volumes/w/r.0: disk full (node n1): free space on the disk of the data folder, or raise limits.disk_space if the disk has room, then move it again"
    )
    assert.strictEqual(
      text({ code: "REFUSED", message: "target ../x: it contains `..`" }),
      `target ../x: it contains \`..\` (node n1): ${NEW_DEFINITION}`
    )
    assert.strictEqual(
      textOfFailure(new InstallFailed({ reason: "install script exited with 3", exit_code: 3 }), place),
      `install script exited with 3 (node n1): read the install log; if the cause has passed, reinstall; otherwise ${NEW_DEFINITION}`
    )
  })

  it("a refusal because of a failure has its reason in `detail` and its next step in `hint`", () => {
    const refusal = (error: InstallFailed) =>
      installFailure({ phase: "failed", failure_reason: textOfFailure(error, place) })
    assert.deepStrictEqual(refusal(installFailed({ code: "ENOSPC", message: "copy a (b): c" })), {
      reason: "copy a (b): c (node n1)",
      hint: "Free space on the disk of the data folder, or raise limits.disk_space if the disk has room, then reinstall."
    })
    assert.deepStrictEqual(refusal(new InstallFailed({ reason: "install script exited with 3" })), {
      reason: "install script exited with 3 (node n1)",
      hint: INSTALL_FAILED_HINT
    })
    assert.deepStrictEqual(installFailure({ phase: "failed", exit_code: 3 }), {
      reason: "exit code 3",
      hint: INSTALL_FAILED_HINT
    })
  })

  it("paths are relative to the data folder, which is not named", () => {
    const message = "create folder /srv/muster/node/servers/srv_1/tree: permission denied"
    const line = textOfFailure(installFailed({ message }), place)
    assert.match(line, /^create folder servers\/srv_1\/tree: permission denied /)
    const itself = textOfFailure(installFailed({ message: "open /srv/muster/node: it is gone" }), place)
    assert.match(itself, /^open the data folder: it is gone /)
  })

  const missing: Record<
    string,
    {
      readonly volumes?: ReadonlyArray<Volume>
      readonly mounts?: ReadonlyArray<Mount>
      readonly copy?: ReadonlyArray<Copy>
    }
  > = {
    "state.copy: there is no files/config.yml": {
      copy: [{ source: "files/config.yml", target: "config.yml" }]
    },
    "state.volumes: there is no volumes/maps/arena": {
      volumes: [{ name: "maps", source: "maps/arena", target: "maps", mode: "ro" }]
    },
    "state.mounts: there is no /srv/none": { mounts: [{ source: "/srv/none", target: "m", mode: "ro" }] }
  }
  for (const [reason, definition] of Object.entries(missing)) {
    it.live(`a missing source: ${reason}; the install log ends with the same line`, () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const log: Array<string> = []
        const { create, daemon, lastInstall } = yield* harness({ allowedMounts: ["/srv"] }, dataDir, log)
        const id = yield* create({ install: { script: "echo hello" }, definition })
        yield* until("failed", () => lastInstall(id)?.phase === "failed")
        const [, name = ""] = / no ([^/].*)$/.exec(reason) ?? []
        const place = name === "" ? "there" : `at ${join(dataDir, name)}`
        const line = `${reason} (node test-node): put it ${place}, then reinstall`
        assert.strictEqual(lastInstall(id)?.failure_reason, line)
        const { items } = yield* daemon.installLogs(id, { page: 1, per_page: 10 })
        assert.deepStrictEqual(items, ["hello", "", `[${line}]`])
        const ofServer = log.filter((entry) => entry.endsWith(`server_id=${id}`))
        assert.deepStrictEqual(ofServer, [`Warn the server cannot be installed: ${line} server_id=${id}`])
      }).pipe(Effect.scoped)
    )
  }

  it.live("software for containers only, on a node without them", () =>
    Effect.gen(function* () {
      const { create, dataDir, lastInstall } = yield* harness()
      const id = yield* create({
        install: { script: `touch ${"$INSTALL_DIR"}/ran` },
        definition: { image: "example/java:21", runtimes: ["docker"] }
      })
      yield* until("failed", () => lastInstall(id)?.phase === "failed")
      assert.strictEqual(
        lastInstall(id)?.failure_reason,
        "the software runs in containers only, and this node runs plain processes (node test-node): enable Docker (MUSTER_NODE_RUNTIME, MUSTER_EMBEDDED_RUNTIME), then reinstall"
      )
      assert.deepStrictEqual(
        lastInstall(id)?.steps?.map(({ name }) => name),
        ["instance"],
        "the step that failed"
      )
      assert.isFalse(existsSync(join(dataDir, "base/echo")), "no script runs outside a container")
    }).pipe(Effect.scoped)
  )
})

describe("blueprints, state.volumes: a missing source", () => {
  for (const instanceFiles of ["overlay", "copy"] as const) {
    it.live(`a missing cow or rw source starts empty, with a line in the install log: ${instanceFiles}`, () =>
      Effect.gen(function* () {
        const dataDir = yield* temporaryFolder
        const notes = { ...recorder(), log: [] as string[] }
        const { daemon } = yield* openDaemon(dataDir, notes, { instanceFiles })
        const installed = Effect.fnUntraced(function* () {
          const spec = specOf({
            install: { script: "mkdir world; echo base > world/base" },
            definition: {
              volumes: [
                { name: "world", source: "worlds/x", target: "/world", mode: "cow" },
                { name: "shared", source: "shared/y", target: "/shared", mode: "rw" }
              ]
            }
          })
          yield* Effect.addFinalizer(() => Effect.ignore(daemon.remove(spec.id)))
          yield* daemon.create(spec)
          yield* until("ready", () =>
            notes.reports.some(
              (report) =>
                report.server_id === spec.id &&
                report.type === "install-status" &&
                report.install.phase === "ready"
            )
          )
          const { items } = yield* daemon.installLogs(spec.id, { page: 1, per_page: 10 })
          return { ...spec, warned: items, files: join(dataDir, "servers", spec.id, "files") }
        })
        const world = "state.volumes: source worlds/x is not on node test-node: /world starts empty"
        const shared = "state.volumes: source shared/y is not on node test-node: /shared starts empty"
        const first = yield* installed()
        assert.deepStrictEqual(first.warned, [`[WARN ${world}]`, `[WARN ${shared}]`])
        assert.includeMembers(
          notes.log,
          [world, shared].map((line) => `Warn ${line} server_id=${first.id}`)
        )
        assert.strictEqual(readFileSync(join(first.files, "world/base"), "utf8"), "base\n")
        writeFileSync(join(first.files, "world/own"), "mine")
        writeFileSync(join(first.files, "shared/all"), "ours")

        // The daemon does not create the missing template, so that the next server logs it, too.
        const second = yield* installed()
        assert.deepStrictEqual(second.warned, [`[WARN ${world}]`])
        assert.isFalse(existsSync(join(dataDir, "volumes/worlds")))
        assert.isFalse(existsSync(join(second.files, "world/own")))
        assert.strictEqual(readFileSync(join(second.files, "shared/all"), "utf8"), "ours")

        mkdirSync(join(dataDir, "volumes/worlds/x"), { recursive: true })
        write(dataDir, { "volumes/worlds/x/level": "put there" })
        const third = yield* installed()
        assert.deepStrictEqual(third.warned, [])
        assert.strictEqual(readFileSync(join(third.files, "world/level"), "utf8"), "put there")
      }).pipe(Effect.scoped)
    )
  }
})
