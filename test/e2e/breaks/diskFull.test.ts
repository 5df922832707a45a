import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { during, smallDisk, smallDiskNote, withSmallDisk } from "../../support/faults/index.ts"
import { mountsBelow } from "../../support/mounts.ts"
import { alone, connectedNode } from "../../support/nodes.ts"
import { endLeftovers } from "../../support/processes.ts"
import { type Service, startService } from "../../support/Service.ts"
import { becomes, create, expectStatus, powered, running } from "../../support/servers.ts"

const zeros = (name: string, mib: number) => `head -c ${mib * 1024 * 1024} /dev/zero > ${name}`
const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "large.yml": softwareFile("large", {
      files: { "server.sh": consoleServer },
      install: { script: zeros("big", 64) }
    })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game"), "large.yml": blueprintFile("large", "large") }
}
const installOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/install`), ({ json }) => json)

/** Files of an installation on a node, without its log. */
const leftOf = (dataDir: string, id: string) => {
  const list = (...path: ReadonlyArray<string>) => {
    const folder = join(dataDir, "node", ...path)
    return existsSync(folder) ? readdirSync(folder) : []
  }
  return {
    server: list("servers", id).filter((name) => /^(files|tree)/.test(name)),
    base: list("base").filter((name) => name.startsWith(".aside")),
    mounts: mountsBelow(join(dataDir, "node", "servers", id))
  }
}
const nothing = { server: [], base: [], mounts: [] }

describe.runIf(withSmallDisk)(`spec 9.6: disk full on a node${smallDiskNote}`, () => {
  it.live(
    "a creation on a full disk fails with a reason; once there is space, a reinstall succeeds",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const disk = yield* smallDisk(32)
        yield* Effect.addFinalizer(() => endLeftovers(disk.path))
        const api = yield* startService({ env: { ...alone, ...env } })
        yield* connectedNode(api, "n1", {
          dataDir: disk.path,
          env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28740-28759" }
        })
        const other = yield* running(api, "kept")
        const failed = yield* during(
          disk.full,
          Effect.gen(function* () {
            const id = yield* create(api, "kept")
            const install = yield* eventually(installOf(api, id), ({ phase }) => phase === "failed")
            assert.match(install.failure_reason, /disk full/)
            yield* becomes(api, other, "running")
            return id
          })
        )
        assert.deepStrictEqual(leftOf(disk.path, failed), nothing)
        yield* expectStatus(api, 202, "POST", `/api/servers/${failed}/reinstall`)
        yield* eventually(installOf(api, failed), ({ phase }) => phase === "ready")
        yield* powered(api, failed, "start")
        yield* becomes(api, failed, "running")
        yield* becomes(api, other, "running")
      }).pipe(Effect.scoped),
    60_000
  )
})
