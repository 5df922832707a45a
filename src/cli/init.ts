import { fileURLToPath } from "node:url"
import { Console, Effect, FileSystem, Path, type PlatformError } from "effect"
import { Command } from "effect/cli"
import { StartError } from "../config/StartError.ts"
import { ServiceConfig } from "../config/service.ts"

/** A folder of examples in the package. */
const examples = (folder: "blueprints" | "software") =>
  fileURLToPath(new URL(`../../${folder}`, import.meta.url))

/** Copies the example files that `target` does not have; returns their paths. */
const writeExamples = Effect.fnUntraced(function* (folder: "blueprints" | "software", target: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const names = yield* fs.readDirectory(examples(folder), { recursive: true })
  const written = yield* Effect.forEach(names.filter((name) => name.endsWith(".yml")).toSorted(), (name) => {
    const file = path.join(target, name)
    return Effect.gen(function* () {
      const bytes = yield* fs.readFile(path.join(examples(folder), name))
      yield* fs.makeDirectory(path.dirname(file), { recursive: true })
      yield* fs.writeFile(file, bytes, { flag: "wx" })
      return [file]
    }).pipe(Effect.catchReason("PlatformError", "AlreadyExists", () => Effect.succeed<Array<string>>([])))
  })
  return written.flat()
})

const cannotWrite = ({ message }: PlatformError.PlatformError) =>
  Effect.fail(
    new StartError({
      message: `the examples cannot be written (${message}): set MUSTER_BLUEPRINTS_DIR and MUSTER_SOFTWARE_DIR`
    })
  )

/** `muster init`: writes the examples of blueprints and software into the folders of the settings. */
export const init = Command.make(
  "init",
  {},
  Effect.fn(function* () {
    const { blueprintsDir, softwareDir } = yield* ServiceConfig.load
    const written = yield* Effect.all([
      writeExamples("software", softwareDir),
      writeExamples("blueprints", blueprintsDir)
    ]).pipe(Effect.catchTag("PlatformError", cannotWrite))
    for (const file of written.flat()) yield* Console.log(file)
    yield* Console.log(
      written.flat().length === 0
        ? "All examples exist already: nothing is written."
        : "Start the service with `muster serve`; a service that runs reads the files after `kill -HUP`."
    )
  })
).pipe(
  Command.withShortDescription("Write examples of blueprints and software"),
  Command.withDescription(
    "Write the examples of blueprints and software into MUSTER_BLUEPRINTS_DIR (./blueprints) and MUSTER_SOFTWARE_DIR (./software). Files that exist stay as they are."
  )
)
