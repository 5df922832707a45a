import { createHash } from "node:crypto"
import { createReadStream, readFileSync, rmSync, writeFileSync } from "node:fs"
import { open } from "node:fs/promises"
import { join } from "node:path"
import { pipeline } from "node:stream/promises"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { games } from "../controlPlane/http/support/http.ts"
import { continued, type Large, locationOf, makeLarge, uploadsOf } from "../controlPlane/http/support/tus.ts"
import { batch, openssh } from "../controlPlane/sftp/support/programs.ts"
import { definitions } from "../support/definitions.ts"
import { filesOn } from "../support/moves.ts"
import { alone, connectedNode } from "../support/nodes.ts"
import { residentBytes } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const MIB = 2 ** 20
/** 10 GiB, of which the disk has three at a time; `MUSTER_TEST_FILE_MIB` makes it smaller. */
const SIZE = Number(process.env.MUSTER_TEST_FILE_MIB ?? 10 * 1024)
/** Memory of a process beyond that before a transfer, in MiB: the goal is 64, and a busy machine collects garbage late. */
const MOST = 128

const written = (path: string, file: Large) =>
  Effect.promise(async () => {
    const handle = await open(path, "w")
    for (let at = 0; at < file.size; at += MIB) await handle.write(file.from(at))
    await handle.close()
  })

const sha256Of = (path: string) =>
  Effect.promise(() => {
    const hash = createHash("sha256")
    return pipeline(createReadStream(path, { highWaterMark: MIB }), hash).then(() => hash.digest("hex"))
  })

const peakBytes = (pid: number) =>
  Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024

describe("spec 10.6, 10.8: a file of 10 GiB on a remote node", () => {
  it.live.skipIf(!openssh.run)(
    `arrives and leaves whole, with OpenSSH's client, tus and HTTP, in bounded memory of both processes${openssh.note}`,
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const options = { NODE_OPTIONS: "--max-semi-space-size=8", MUSTER_OVERCOMMIT_DISK: "1000" }
        const api = yield* startService({ env: { ...alone, ...env, ...options, MUSTER_SFTP_PORT: "0" } })
        const node = yield* connectedNode(api, "n1", { env: options })
        const limits = { disk_space: Math.ceil((3 * SIZE * MIB) / 1e6) + 1000 }
        const id = yield* installed(api, "kept", { node_id: "n1", overrides: { limits } })
        const folder = yield* temporaryFolder
        const [sent, got] = [join(folder, "sent"), join(folder, "got")]
        const file = makeLarge(SIZE)
        yield* written(sent, file)

        const bounded = Effect.fnUntraced(function* <A, E, R>(
          what: string,
          transfer: Effect.Effect<A, E, R>
        ) {
          const pids = Object.entries({ service: api.process.pid ?? 0, daemon: node.process.pid ?? 0 })
          const before = pids.map(([, pid]) => residentBytes(pid))
          // 5: the peak begins again.
          for (const [, pid] of pids) writeFileSync(`/proc/${pid}/clear_refs`, "5")
          const result = yield* transfer
          for (const [index, [name, pid]] of pids.entries())
            assert.isBelow((peakBytes(pid) - (before[index] ?? 0)) / MIB, MOST, `MiB of the ${name}: ${what}`)
          return result
        })

        yield* bounded("SFTP put", batch(api, id, folder, [`put ${sent} big`]))
        rmSync(sent)
        assert.strictEqual(yield* sha256Of(filesOn(node, id, "big")), file.sha256)
        yield* bounded("SFTP get", batch(api, id, folder, [`get big ${got}`]))
        assert.strictEqual(yield* sha256Of(got), file.sha256)
        rmSync(got)

        const begun = yield* uploadsOf(api, id).create({ path: "/big" }, file.size)
        const cut = { after: (SIZE * MIB) / 3 }
        yield* bounded(
          "upload with tus",
          Effect.gen(function* () {
            const broken = yield* continued(api, locationOf(begun), file, cut)
            assert.isUndefined(broken.status)
            const { offset, status, text } = yield* continued(api, locationOf(begun), file)
            assert.strictEqual(status, 204, text)
            assert.isAbove(offset, 0)
          })
        )
        assert.strictEqual(yield* sha256Of(filesOn(node, id, "big")), file.sha256)
        const hash = createHash("sha256")
        yield* bounded(
          "download over HTTP",
          Effect.promise(async () => {
            const { body } = await fetch(`${api.url}/api/servers/${id}/files/content?path=/big`, {
              headers: { authorization: `Bearer ${api.key}` }
            })
            for await (const piece of body ?? []) hash.update(piece)
          })
        )
        assert.strictEqual(hash.digest("hex"), file.sha256)
      }).pipe(Effect.scoped),
    3_600_000
  )
})
