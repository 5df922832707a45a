import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { restartable } from "../../support/faults/index.ts"
import { alone, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { endLeftovers } from "../../support/processes.ts"
import { type Service, startService } from "../../support/Service.ts"
import { becomes, create, expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

interface Step {
  readonly name: string
  readonly finished_at?: string
}

/** A software whose script ends once `gate` exists. */
const gated = (gate: string) => ({
  software: {
    "gated.yml": softwareFile("gated", {
      files: { "server.sh": consoleServer },
      install: { script: `while [ ! -e ${gate} ]; do sleep 0.05; done` }
    })
  },
  blueprints: { "gated.yml": blueprintFile("gated", "gated") }
})

const stepsOf = (api: Pick<Service, "request">, id: string) =>
  Effect.map(
    expectStatus(api, 200, "GET", `/api/servers/${id}/install`),
    ({ json }): Array<Step> => json.steps
  )
const namesOf = (steps: ReadonlyArray<Step>) => steps.map(({ name }) => name).join()

describe("spec 3.11: steps survive kill -9", () => {
  it.live("of the daemon and of the service; the streams of the time before resume without a gap", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const gate = join(folder, "gate")
      const { env } = yield* definitions(gated(gate))
      const settings = { dataDir: join(folder, "service"), env: { ...alone, ...env } }
      const first = yield* startService(settings)
      const { key } = yield* nodeKey(first, "n1")
      const dataDir = join(folder, "n1")
      yield* Effect.addFinalizer(() => endLeftovers(dataDir))
      const node = yield* restartable(
        "the daemon",
        startNode({
          control: first.url,
          key,
          id: "n1",
          dataDir,
          env: {
            MUSTER_NODE_HEARTBEAT: "1",
            MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28660-28669",
            MUSTER_PROCESS_ISOLATION: "none"
          }
        })
      )
      yield* nodeIs(first, "n1", true)
      const stream = yield* subscribe(first, "/api/events?topics=install&cursor=now")
      const id = yield* create(first, "gated", { start: true })
      const inScript = (steps: ReadonlyArray<Step>) => namesOf(steps) === "place,commit,script"
      yield* eventually(stepsOf(first, id), inScript)
      const last = stream.events().at(-1)?.Cursor ?? 0
      yield* node.killed.inject
      assert.isTrue(inScript(yield* stepsOf(first, id)))
      yield* node.killed.heal
      const port = Number(new URL(first.url).port)
      yield* first.kill("SIGKILL")
      const api = yield* startService({ ...settings, env: { ...settings.env, MUSTER_PORT: String(port) } })
      assert.isTrue(inScript(yield* stepsOf(api, id)))
      yield* nodeIs(api, "n1", true)
      writeFileSync(gate, "")
      yield* becomes(api, id, "running")
      const steps = yield* eventually(stepsOf(api, id), (all) => all.length === 5)
      assert.strictEqual(namesOf(steps), "place,commit,script,instance,start")
      assert.isTrue(steps.every(({ finished_at }) => finished_at !== undefined))
      const resumed = yield* subscribe(api, `/api/events?topics=install&cursor=${last}`)
      const expected = ["installing instance", "ready", "ready start", "ready start"].map(
        (step) => `install ${step}`
      )
      yield* eventually(
        Effect.sync(() => resumed.of(id)),
        (seen) => seen.length >= expected.length
      )
      assert.deepStrictEqual(resumed.of(id).slice(-4), expected)
    }).pipe(Effect.scoped)
  )
})
