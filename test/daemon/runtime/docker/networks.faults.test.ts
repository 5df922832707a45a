import { randomUUID } from "node:crypto"
import { chmodSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { engineNote, TEST_IMAGE, TestEngine, withEngine } from "../../../support/dockerEngine.ts"
import { until } from "../../../support/eventually.ts"
import { bench, consoleOf, folder } from "./support.ts"

const PORT = 7001
const MIB = 1024 * 1024
/** Listens on an unpublished port. */
const listens = `echo listens; while :; do echo secret | nc -l -p ${PORT}; done`
/** Tries to connect to the port. */
const asks = (address: string) =>
  `for i in 1 2 3; do nc -w 1 ${address} ${PORT} </dev/null && echo reached; done; echo tried`

/** Whether the port answers to this machine, which reaches every container. */
const answers = (address: string) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect({ host: address, port: PORT, timeout: 1000 })
    const end = (is: boolean) => {
      socket.destroy()
      resume(Effect.succeed(is))
    }
    socket.on("connect", () => end(true))
    for (const event of ["error", "timeout"]) socket.on(event, () => end(false))
  })

describe.runIf(withEngine)(`Docker runtime: networks${engineNote}`, () => {
  layer(TestEngine.layer, { timeout: "3 minutes", excludeTestServices: true })((it) => {
    const scene = Effect.gen(function* () {
      const { docker } = yield* TestEngine
      const at = yield* bench()
      const own = Effect.promise(() =>
        docker.listContainers({ all: true, filters: { label: [`muster.node=${at.node}`] } })
      )
      const inspect = (name: string) =>
        Effect.gen(function* () {
          const found = (yield* own).find(({ Labels }) => Labels["muster.server"] === name)
          return yield* Effect.promise(() => docker.getContainer(found?.Id ?? "").inspect())
        })
      const { launch } = yield* at.start(listens)
      yield* until("the first server listens", () => consoleOf(launch).includes("listens"))
      const first = yield* inspect(launch.server_id)
      const address = Object.values(first.NetworkSettings.Networks)[0]?.IPAddress ?? ""
      yield* Effect.repeat(answers(address), { until: (is) => is })
      return { ...at, address, docker, first, inspect }
    })

    it.effect("a server cannot connect to an unpublished port of another server", () =>
      Effect.gen(function* () {
        const { address, close, docker, first, inspect, node, runtime, start } = yield* scene
        const other = yield* start(asks(address))
        const { HostConfig } = yield* inspect(other.launch.server_id)
        assert.strictEqual(HostConfig.NetworkMode, first.HostConfig.NetworkMode)
        assert.notStrictEqual(HostConfig.NetworkMode, "bridge")
        yield* until("it has tried", () => consoleOf(other.launch).includes("tried"))
        assert.notInclude(consoleOf(other.launch), "reached")
        assert.isTrue(yield* answers(address))
        for (const name of yield* runtime.alive) yield* runtime.sweep(name)
        yield* close
        const networks = yield* Effect.promise(() =>
          docker.listNetworks({ filters: { label: [`muster.node=${node}`] } })
        )
        assert.deepStrictEqual(networks, [])
      }).pipe(Effect.scoped)
    )

    it.effect("an install job has limits and its own network, and cannot connect to a server", () =>
      Effect.gen(function* () {
        const { address, first, inspect, runtime } = yield* scene
        const base = yield* folder
        chmodSync(base, 0o755)
        writeFileSync(join(base, "script"), `${asks(address)}; read -r line`)
        const name = `install:${randomUUID()}`
        let output = ""
        const job = yield* runtime.job({
          name,
          folder: base,
          cwd: base,
          argv: ["sh", join(base, "script")],
          env: {},
          onOutput: (bytes) => {
            output += Buffer.from(bytes).toString()
          },
          choice: { image: TEST_IMAGE, runtimes: ["docker"] }
        })
        yield* until("it has tried", () => output.includes("tried"))
        const { HostConfig } = yield* inspect(name)
        assert.notInclude(output, "reached")
        assert.notStrictEqual(HostConfig.NetworkMode, first.HostConfig.NetworkMode)
        assert.deepInclude(HostConfig, {
          Memory: 4096 * MIB,
          MemorySwap: 4096 * MIB,
          CpuQuota: 400_000,
          PidsLimit: 4096,
          CapDrop: ["ALL"],
          SecurityOpt: ["no-new-privileges:true"],
          ReadonlyRootfs: true
        })
        yield* job.write("")
        assert.strictEqual((yield* job.ended).code, 0)
      }).pipe(Effect.scoped)
    )
  })
})
