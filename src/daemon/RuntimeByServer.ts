import { Context, Effect, Layer } from "effect"
import type { RuntimeKind } from "../domain/Node.ts"
import { readContainerRecord } from "./runtime/docker/containerRecord.ts"
import { type Launch, Runtime, type RuntimeChoice } from "./runtime/Runtime.ts"

const choiceOf = ({ image, runtimes }: Launch): RuntimeChoice => ({
  image,
  runtimes: runtimes ?? (image === "" ? ["process"] : ["docker"])
})

/**
 * Runs containers and plain processes on one node. A server runs in a container if its software allows that and has an
 * image, and the engine responds; else as a process, if its software allows that.
 */
export const RuntimeByServer = {
  layer: (runtimes: {
    readonly docker: Layer.Layer<Runtime>
    readonly process: Layer.Layer<Runtime>
  }): Layer.Layer<Runtime> =>
    Layer.effect(
      Runtime,
      Effect.gen(function* () {
        const built = (layer: Layer.Layer<Runtime>) => Effect.map(Layer.build(layer), Context.get(Runtime))
        // Both wait for other programs.
        const [plain, docker] = yield* Effect.all([built(runtimes.process), built(runtimes.docker)], {
          concurrency: 2
        })

        const kindFor = Effect.fnUntraced(function* (choice: RuntimeChoice) {
          if (!choice.runtimes.includes("docker")) return yield* plain.kindFor(choice)
          const inContainer = docker.kindFor(choice)
          if (!choice.runtimes.includes("process")) return yield* inContainer
          return yield* Effect.catch(inContainer, () => plain.kindFor(choice))
        })
        const runtimeOf = (kind: RuntimeKind) => (kind === "docker" ? docker : plain)
        const runtimeFor = (choice: RuntimeChoice | undefined) =>
          choice === undefined ? Effect.succeed(plain) : Effect.map(kindFor(choice), runtimeOf)

        return Runtime.of({
          kind: "docker",
          kinds: Effect.map(Effect.all([docker.kinds, plain.kinds]), (kinds) => kinds.flat()),
          kindFor,
          userFor: (choice, whom) =>
            Effect.flatMap(runtimeFor(choice), (runtime) => runtime.userFor(choice, whom)),
          reserveUser: plain.reserveUser,
          renameUser: plain.renameUser,
          releaseUser: plain.releaseUser,
          notEnforced: plain.notEnforced,
          lacksUids: plain.lacksUids,
          isolation: Effect.map(Effect.all([plain.isolation, docker.isolation]), ([one, other]) => ({
            ...one,
            ...other
          })),
          prepare: (choice, onOutput, watch) =>
            Effect.flatMap(runtimeFor(choice), (runtime) => runtime.prepare(choice, onOutput, watch)),
          ensureImage: (choice, watch) =>
            Effect.flatMap(runtimeFor(choice), (runtime) => runtime.ensureImage(choice, watch)),
          start: (launch) => Effect.flatMap(runtimeFor(choiceOf(launch)), (runtime) => runtime.start(launch)),
          adopt: (at) =>
            Effect.flatMap(readContainerRecord(at.folder, at.token), (record) =>
              record === undefined ? plain.adopt(at) : docker.adopt(at)
            ),
          sweep: (name) => Effect.andThen(plain.sweep(name), docker.sweep(name)),
          alive: Effect.map(
            Effect.all([plain.alive, docker.alive]),
            (names) => new Set(names.flatMap((found) => [...found]))
          ),
          job: (job) => Effect.flatMap(runtimeFor(job.choice), (runtime) => runtime.job(job))
        })
      })
    )
}
