import { writeFileSync } from "node:fs"
import { createServer, type ServerResponse } from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { progressReader } from "../../../src/daemon/runtime/docker/images.ts"
import { until } from "../../support/eventually.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { harness, type Recorder } from "../support.ts"

const stepsOf = (notes: Recorder, id: string, live = false) =>
  notes.reports
    .flatMap((report) =>
      report.server_id === id && report.type === "install-status" && (report.sequence === 0) === live
        ? [report.install.steps ?? []]
        : []
    )
    .at(-1) ?? []
const namesOf = (notes: Recorder, id: string) => stepsOf(notes, id).map(({ name }) => name)

/** An engine without the image `game:1`, whose pull sends `lines` and then waits for the test. */
const pullingEngine = Effect.fnUntraced(function* (lines: ReadonlyArray<object>) {
  const socket = join(yield* temporaryFolder, "engine.sock")
  let pull: ServerResponse | undefined
  let isThere = false
  const server = createServer(({ url = "" }, response) => {
    if (url.startsWith("/_ping")) return response.writeHead(200, { "api-version": "1.41" }).end("OK")
    if (url.startsWith("/images/create")) {
      pull = response.writeHead(200)
      return response.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""))
    }
    if (url.startsWith("/images/")) return response.writeHead(isThere ? 200 : 404).end("{}")
    response.writeHead(200).end("[]")
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(socket, () => resume(Effect.void))
    }),
    () =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  return {
    socket,
    pulled: Effect.sync(() => {
      isThere = true
      pull?.end()
    })
  }
})

describe("spec 3.11: steps", () => {
  it.live("each server that waits for a shared base has its steps, also one that comes later", () =>
    Effect.gen(function* () {
      const { create, dataDir, lastInstall, notes } = yield* harness()
      const gate = join(dataDir, "gate")
      const install = { script: `while [ ! -e ${gate} ]; do sleep 0.02; done` }
      const ids = [yield* create({ install }), yield* create({ install })]
      yield* until("both show the script", () => ids.every((id) => namesOf(notes, id).at(-1) === "script"))
      ids.push(yield* create({ install }))
      yield* until("the third, too", () => ids.every((id) => namesOf(notes, id).at(-1) === "script"))
      for (const id of ids) assert.isUndefined(stepsOf(notes, id)[0]?.finished_at)
      writeFileSync(gate, "")
      yield* until("all are ready", () => ids.every((id) => lastInstall(id)?.phase === "ready"))
      for (const id of ids) {
        assert.deepStrictEqual(namesOf(notes, id), ["script", "instance"])
        assert.isTrue(stepsOf(notes, id).every(({ finished_at }) => finished_at !== undefined))
      }
      const late = yield* create({ install })
      yield* until("it is ready", () => lastInstall(late)?.phase === "ready")
      assert.deepStrictEqual(namesOf(notes, late), ["instance"])
    }).pipe(Effect.scoped)
  )

  it.live("a failure ends the step in which it happens", () =>
    Effect.gen(function* () {
      const { create, lastInstall, notes } = yield* harness()
      const id = yield* create({ install: { script: "exit 3" } })
      yield* until("it has failed", () => lastInstall(id)?.phase === "failed")
      const [script, ...more] = stepsOf(notes, id)
      assert.strictEqual(script?.name, "script")
      assert.isDefined(script?.finished_at)
      assert.deepStrictEqual(more, [])
    }).pipe(Effect.scoped)
  )

  it.live("the pull of an image is a step; its progress is a report without a sequence", () =>
    Effect.gen(function* () {
      const engine = yield* pullingEngine([
        { status: "Pulling fs layer", id: "a" },
        { status: "Pulling fs layer", id: "b" },
        { status: "Downloading", id: "a", progressDetail: { current: 50, total: 100 } },
        { status: "Download complete", id: "a" }
      ])
      const { create, lastInstall, notes } = yield* harness({ docker: { socket: engine.socket } })
      const id = yield* create({ definition: { image: "game:1", runtimes: ["docker"] } })
      yield* until("the progress is reported", () => stepsOf(notes, id, true).length > 0)
      const [live] = stepsOf(notes, id, true)
      assert.deepInclude(live, { name: "pull", progress: 0.25 })
      const [durable, ...others] = stepsOf(notes, id)
      assert.deepStrictEqual(durable, { name: "pull", started_at: live?.started_at ?? "" })
      assert.deepStrictEqual(others, [])
      yield* engine.pulled
      yield* until("it is ready", () => lastInstall(id)?.phase === "ready")
      assert.deepStrictEqual(namesOf(notes, id), ["pull", "instance"])
    }).pipe(Effect.scoped)
  )

  it("the progress of a pull is the mean of its layers, and never shrinks", () => {
    const seen: Array<number> = []
    const reader = progressReader(
      () => undefined,
      (share) => seen.push(share)
    )
    const layer = (id: string, status: string, current?: number) =>
      reader.take(
        `${JSON.stringify({ id, status, ...(current === undefined ? {} : { progressDetail: { current, total: 4 } }) })}\n`
      )
    layer("1", "Pulling from library/game")
    layer("a", "Pulling fs layer")
    layer("b", "Pulling fs layer")
    layer("a", "Downloading", 2)
    layer("a", "Download complete")
    layer("a", "Downloading", 1)
    layer("b", "Already exists")
    layer("c", "Pulling fs layer")
    layer("a", "Extracting", 4)
    layer("c", "Pull complete")
    assert.deepStrictEqual(seen, [0.125, 0.25, 0.75, 1])
  })
})
