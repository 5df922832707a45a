/** Uploads that continue after cut connections and killed processes (spec 10.8). */
import { statSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { games } from "../controlPlane/http/support/http.ts"
import {
  continued,
  type Large,
  locationOf,
  makeLarge,
  offsetOf,
  sha256Of,
  temporaryFiles,
  uploadsOf
} from "../controlPlane/http/support/tus.ts"
import { definitions } from "../support/definitions.ts"
import { filesOn } from "../support/moves.ts"
import { freePort, nodeIs, startNode } from "../support/nodes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { type Service, startService } from "../support/Service.ts"
import { installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const MIB = 2 ** 20
const SIZE = 208
const path = "/worlds/world.bin"

/** Begins an upload to a server whose files are below `dataDir`. */
const begun = Effect.fnUntraced(function* (api: Service, dataDir: string, id: string, file: Large) {
  const made = yield* uploadsOf(api, id).create({ path }, file.size)
  assert.strictEqual(made.status, 201, made.text)
  const upload = locationOf(made)
  const folder = filesOn({ dataDir }, id, "")
  let known = 0
  let most = 0
  return {
    /** Sends some MiB until the connection is cut, or `act` ends it. Returns the status, if there was one. */
    broken: Effect.fnUntraced(function* (via: Service, mebibytes: number, act?: () => void) {
      const stop = { after: mebibytes * MIB, ...(act === undefined ? {} : { act }) }
      const { bytes, offset, status } = yield* continued(via, upload, file, stop)
      assert.isAtLeast(offset, known, "an offset that was known is lost")
      known = offset
      // Bytes of an earlier request may still arrive.
      most = Math.max(most, offset + bytes)
      return status
    }),
    /** Checks the offset: what was known stays, all of it is on disk, and nothing was not sent. */
    check: Effect.fnUntraced(function* (via: Service) {
      const offset = yield* offsetOf(via, upload)
      assert.isAtLeast(offset, known, "an offset that was known is lost")
      assert.isAtMost(offset, most)
      const [temporary = ""] = temporaryFiles(folder)
      assert.isAtLeast(statSync(join(folder, temporary)).size, offset)
      known = offset
    }),
    end: Effect.fnUntraced(function* (via: Service) {
      const { offset, status, text } = yield* continued(via, upload, file)
      assert.strictEqual(status, 204, text)
      assert.isAtLeast(offset, known)
      assert.isAbove(offset, 64 * MIB, "an earlier part was sent again")
      assert.strictEqual(yield* sha256Of(filesOn({ dataDir }, id, path)), file.sha256)
      assert.deepStrictEqual(temporaryFiles(folder), [])
    })
  }
})

describe("spec 10.8: an upload of 208 MiB continues", () => {
  it.live(
    "after three cut connections and the death of the service with its node",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const dataDir = join(yield* temporaryFolder, "data")
        const start = startService({ dataDir, env: { ...env, MUSTER_PORT: String(yield* freePort) } })
        const api = yield* start
        const id = yield* installed(api, "kept")
        const { broken, check, end } = yield* begun(api, dataDir, id, makeLarge(SIZE))
        for (const mebibytes of [24, 1, 30]) {
          assert.isUndefined(yield* broken(api, mebibytes))
          yield* check(api)
        }
        yield* broken(api, 40, () => void api.process.kill("SIGKILL"))
        yield* api.kill("SIGKILL")
        const again = yield* start
        yield* check(again)
        yield* end(again)
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "on a remote node: after the death of its daemon, and at another replica after the death of the first",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const set = yield* replicaSet(env)
        const [first, other] = [yield* set.start(), yield* set.start()]
        const { key } = yield* set.key("n1", "Node")
        const dataDir = join(yield* temporaryFolder, "n1")
        const startDaemon = Effect.gen(function* () {
          const daemon = yield* startNode({ control: other.url, key, id: "n1", dataDir })
          for (const api of [first, other]) yield* nodeIs(api, "n1", true)
          return daemon
        })
        const daemon = yield* startDaemon
        const id = yield* installed(first, "kept")
        const { broken, check, end } = yield* begun(first, dataDir, id, makeLarge(SIZE))
        yield* broken(first, 24)
        yield* check(other)
        yield* broken(other, 1)
        yield* check(first)
        const status = yield* broken(first, 30, () => void daemon.process.kill("SIGKILL"))
        assert.strictEqual(status, 503)
        yield* daemon.kill("SIGKILL")
        yield* startDaemon
        yield* check(other)
        yield* broken(first, 40, () => void first.process.kill("SIGKILL"))
        yield* first.kill("SIGKILL")
        yield* check(other)
        yield* broken(other, 10)
        yield* end(other)
      }).pipe(Effect.scoped),
    90_000
  )
})
