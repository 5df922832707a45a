import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { readDatabase } from "../../support/database.ts"
import { blueprintFile, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { makeRestartingService, restartable } from "../../support/faults/index.ts"
import { journalProblems, processProblems } from "../../support/invariants.ts"
import { filesOn } from "../../support/moves.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { endLeftovers, mainProcess, serverProcesses } from "../../support/processes.ts"
import { freshSeed, type Random, seeded } from "../../support/random.ts"
import type { Answer } from "../../support/Service.ts"
import { expectStatus, powered } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

/** Adds a line to its own file at each start: the definition that it runs with. */
const server = `test -e world.txt || echo "world of $SERVER_ID" > world.txt
echo edited > edited.txt
rm -f removed.txt
echo "$(printenv VALUE) $SERVER_MEMORY $(cat base.txt)" >> runs.txt
echo ready
while read -r what; do test "$what" = stop && exit 0; done`

const files = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": server },
      install: {
        script:
          'for n in 1 2 3 4 5 6 7 8 9; do echo step $n; done\necho "$VERSION" | tee base.txt edited.txt > removed.txt'
      }
    })
  },
  blueprints: Object.fromEntries(
    ["1.0", "2.0"].map((version) => [
      `v${version[0]}.yml`,
      blueprintFile(`v${version[0]}`, "game", {
        server: { version },
        rest: { state: { env: { VALUE: "none" } } }
      })
    ])
  )
}

/** The bases of a version that stay for the values of the variables that its script reads. */
const VARIANTS_KEPT = 4

const memories = ["64", "80", "96"] as const
const versions = ["1.0", "2.0"] as const

/** The values that a server may have; more than one after a lost response. */
interface Wanted {
  readonly id: string
  value: ReadonlyArray<string>
  memory: ReadonlyArray<string>
  version: ReadonlyArray<string>
  readonly history: Array<string>
}

type Name = "value" | "memory" | "version"

const allowed = ({ memory, value, version }: Wanted): ReadonlyArray<string> =>
  value.flatMap((one) => memory.flatMap((two) => version.map((three) => `${one} ${two} ${three}`)))

/** The text of a file of a server: nothing while its files are mounted again, which may be within the call. */
const textOf = (dataDir: string, id: string, name: string) => {
  try {
    return readFileSync(filesOn({ dataDir }, id, name), "utf8").trim()
  } catch (error) {
    assert.propertyVal(error, "code", "ENOENT")
    return undefined
  }
}

const runsOf = (dataDir: string, id: string): ReadonlyArray<string> =>
  textOf(dataDir, id, "runs.txt")?.split("\n") ?? []

const seed = freshSeed()

describe("spec 3.12: control plane and daemon killed at any moment", () => {
  for (const storage of ["auto", "copy"]) {
    it.live(
      `acknowledged changes are applied in the end, and each start gets the newest (instance files: ${storage}, MUSTER_TEST_SEED=${seed})`,
      () =>
        Effect.gen(function* () {
          const { env } = yield* definitions(files)
          const dataDir = join(yield* temporaryFolder, "data")
          const port = yield* freePort
          const restarting = yield* makeRestartingService({
            dataDir,
            env: { ...env, ...alone, MUSTER_PORT: String(port) }
          })
          const { key } = yield* nodeKey({ dataDir }, "n1")
          const nodeDir = join(yield* temporaryFolder, "node")
          yield* Effect.addFinalizer(() => endLeftovers(nodeDir))
          const node = yield* restartable(
            "the daemon",
            startNode({
              control: `http://127.0.0.1:${port}`,
              key,
              id: "n1",
              dataDir: nodeDir,
              env: {
                MUSTER_NODE_HEARTBEAT: "1",
                MUSTER_INSTANCE_FILES: storage,
                MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28640-28699"
              }
            })
          )
          yield* nodeIs(yield* restarting.current, "n1", true)
          let changes = 0
          const surprises: Array<string> = []
          const servers: Array<Wanted> = []

          /** Sends a request until it has a response that is not of a broken service. */
          const send = Effect.fnUntraced(function* (
            wanted: Wanted | undefined,
            method: string,
            path: string,
            options: object,
            onLost: () => void = () => {}
          ): Effect.fn.Return<Answer> {
            while (true) {
              const answer = Option.getOrUndefined(yield* restarting.send(method, path, options))
              wanted?.history.push(`${method} ${path} ${answer?.status}`)
              if (answer !== undefined && answer.status < 500) return answer
              // It may have been carried out.
              onLost()
              yield* Effect.sleep("30 millis")
            }
          })

          const shownOf = (wanted: Wanted) =>
            Effect.map(
              send(
                undefined,
                "GET",
                `/api/servers/${wanted.id}?include=definition,limits,software,status`,
                {}
              ),
              ({ json }) => json
            )

          const change = Effect.fnUntraced(function* (
            wanted: Wanted,
            name: Name,
            to: string,
            [method, path, body]: readonly [string, string, unknown]
          ) {
            const answer = yield* send(wanted, method, `/api/servers/${wanted.id}${path}`, { body }, () => {
              wanted[name] = [...new Set([...wanted[name], to])]
            })
            wanted.history.push(`${name}=${to}`)
            if (answer.status === 200 || answer.status === 202) {
              wanted[name] = [to]
              changes++
            } else surprises.push(`${name} of ${wanted.id}: ${answer.status} ${answer.text}`)
          })

          /** Returns all that control plane and node know of a server. */
          const stateOf = Effect.fnUntraced(function* (wanted: Wanted) {
            const { id } = wanted
            const { json } = yield* send(undefined, "GET", `/api/servers/${id}`, {})
            const path = join(nodeDir, "node", "servers", id, "server.json")
            const onNode = existsSync(path) ? readFileSync(path, "utf8") : "no file"
            return JSON.stringify({ wanted, runs: runsOf(nodeDir, id), json, onNode })
          })

          /** Starts a server again; the next process has the newest definition. */
          const startsWithNewest = Effect.fnUntraced(function* (wanted: Wanted) {
            const power = (action: string) =>
              send(wanted, "POST", `/api/servers/${wanted.id}/power`, { body: { action } })
            while (true) {
              const restarted = (yield* power("restart")).status === 200
              // A start has no effect if the record was late and the server is up with its earlier definition.
              if (!restarted && (yield* power("start")).status !== 200) continue
              const isNewest = () => allowed(wanted).includes(runsOf(nodeDir, wanted.id).at(-1) ?? "")
              const isUpWithEarlier = Effect.map(
                shownOf(wanted),
                (it) => it.status === "running" && it.pending.length > 0
              )
              yield* eventually(
                Effect.map(isUpWithEarlier, (earlier) => isNewest() || (!restarted && earlier)),
                Boolean,
                "60 seconds"
              ).pipe(Effect.tapError(() => Effect.flatMap(stateOf(wanted), Effect.logError)))
              if (isNewest()) return
            }
          }, Effect.orDie)

          const client = Effect.fnUntraced(function* (name: string, random: Random) {
            const body = { blueprint_id: "v1", start: random.below(2) === 0 }
            const headers = { "idempotency-key": name }
            const created = yield* send(undefined, "POST", "/api/servers", { body, headers })
            const wanted: Wanted = {
              id: created.json.id,
              value: ["none"],
              memory: ["64"],
              version: ["1.0"],
              history: []
            }
            servers.push(wanted)
            for (let at = 0; at < 6; at++) {
              const what = random.below(8)
              if (what < 3) {
                const VALUE = `${name}-${at}`
                yield* change(wanted, "value", VALUE, ["PATCH", "", { overrides: { env: { VALUE } } }])
              } else if (what < 5) {
                const memory = random.pick(memories)
                const limits = { memory_limit: Number(memory) }
                yield* change(wanted, "memory", memory, ["PATCH", "", { overrides: { limits } }])
              } else if (what < 7) {
                const version = random.pick(versions)
                const blueprint_id = `v${version[0]}`
                yield* change(wanted, "version", version, ["POST", "/upgrade", { blueprint_id }])
              } else {
                const action = random.pick(["stop", "kill", "start"])
                yield* send(wanted, "POST", `/api/servers/${wanted.id}/power`, { body: { action } })
              }
              if (random.below(3) === 0) yield* startsWithNewest(wanted)
            }
          })

          const random = seeded(seed)
          const killNode = Effect.andThen(node.killed.inject, node.killed.heal)
          const killer = Effect.gen(function* () {
            for (const threshold of [2, 6, 10, 14, 18]) {
              yield* eventually(
                () => changes,
                (count) => count >= threshold,
                "90 seconds"
              )
              yield* Effect.sleep(random.below(300))
              const victim = random.below(5)
              if (victim < 2) yield* killNode
              else if (victim < 4) yield* restarting.killAndRestart()
              else yield* Effect.all([killNode, restarting.killAndRestart()], { concurrency: 2 })
            }
          })
          const clients = Effect.forEach(
            [0, 1, 2, 3, 4, 5],
            (index) => client(`c${seed}-${index}`, seeded(seed + 1 + index)),
            { concurrency: "unbounded", discard: true }
          )
          yield* Effect.all([clients, killer], { concurrency: "unbounded", discard: true })

          assert.deepStrictEqual(surprises, [])
          const api = yield* restarting.current
          for (const wanted of servers) yield* startsWithNewest(wanted)
          const details: Array<unknown> = []
          for (const wanted of servers) {
            const { id } = wanted
            const shown = yield* eventually(
              shownOf(wanted),
              ({ pending, status }) => status === "running" && pending.length === 0
            )
            const run = `${shown.overrides?.env?.VALUE ?? "none"} ${shown.limits.memory_limit} ${shown.version}`
            const history = JSON.stringify(wanted)
            assert.include(allowed(wanted), run, history)
            assert.strictEqual(runsOf(nodeDir, id).at(-1), run, history)
            const process = yield* mainProcess(nodeDir, id)
            const variables = readFileSync(`/proc/${process?.pid}/environ`, "utf8").split("\0")
            assert.include(variables, `SERVER_MEMORY=${shown.limits.memory_limit}`)
            assert.include(variables, `VALUE=${shown.overrides?.env?.VALUE ?? "none"}`)
            details.push([
              textOf(nodeDir, id, "world.txt"),
              textOf(nodeDir, id, "edited.txt"),
              textOf(nodeDir, id, "removed.txt")
            ])
          }
          assert.deepStrictEqual(
            details,
            servers.map(({ id }) => [`world of ${id}`, "edited", undefined])
          )
          const { journal, records } = yield* readDatabase(dataDir)
          assert.deepStrictEqual(journalProblems(journal, records), [])
          for (const { definition, id, redefinition } of records) {
            const file = JSON.parse(readFileSync(join(nodeDir, "node", "servers", id, "server.json"), "utf8"))
            assert.deepStrictEqual(file.spec.definition, JSON.parse(JSON.stringify(definition)))
            assert.strictEqual(file.spec.defined_at, redefinition?.defined_at)
            assert.isTrue(redefinition === undefined || redefinition.delivered)
            assert.isUndefined(file.next)
          }
          const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
          assert.deepStrictEqual(processProblems(listed, serverProcesses(nodeDir)), [])

          // Folders of interrupted work are gone, and so are bases that no server uses.
          for (const { id } of servers) {
            const inside = readdirSync(join(nodeDir, "node", "servers", id))
            assert.deepStrictEqual(
              inside.filter((name) => /building|old|aside|new/.test(name)),
              [],
              id
            )
          }
          for (const { id } of servers) yield* powered(api, id, "kill")
          yield* killNode
          yield* nodeIs(api, "n1", true)
          for (const wanted of servers) {
            yield* send(wanted, "DELETE", `/api/servers/${wanted.id}?purge=true`, {})
          }
          const bases = join(nodeDir, "node", "base")
          yield* eventually(
            () => readdirSync(bases).filter((name) => /^\.aside-/.test(name)),
            (left) => left.length === 0
          )
          yield* eventually(
            () => readdirSync(join(bases, ".generations")),
            (generations) => generations.length <= VARIANTS_KEPT * versions.length
          )
        }).pipe(Effect.scoped),
      240_000
    )
  }
})
