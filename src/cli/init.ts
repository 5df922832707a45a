import { fileURLToPath } from "node:url"
import { Console, Effect, FileSystem, Path, type PlatformError } from "effect"
import { StartError } from "../shared/config/StartError.ts"
import { loadServiceSettings } from "../shared/config/service.ts"
import { command } from "./shared/command.ts"

/** The examples of the package. In a checkout, their folders also have the files of the operator. */
export const examples = {
  software: ["demo.yml", "flying-squid.yml", "paper.yml"],
  blueprints: ["demo-saved.yml", "demo.yml", "flying-squid.yml", "mixins/defaults.yml", "paper.yml"]
} as const

const examplesFolder = (folder: keyof typeof examples) =>
  fileURLToPath(new URL(`../../${folder}`, import.meta.url))

/** Copies the example files that `target` does not have; returns their paths. */
const writeExamples = Effect.fnUntraced(function* (folder: keyof typeof examples, target: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const written = yield* Effect.forEach(examples[folder], (name) => {
    const file = path.join(target, name)
    return Effect.gen(function* () {
      const bytes = yield* fs.readFile(path.join(examplesFolder(folder), name))
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
export const init = command("init", {
  description:
    "Write the examples of blueprints and software into MUSTER_BLUEPRINTS_DIR (./blueprints) and MUSTER_SOFTWARE_DIR (./software). Files that exist stay as they are.",
  short: "Write examples of blueprints and software",
  examples: {
    "muster init": "Into ./blueprints and ./software",
    "MUSTER_BLUEPRINTS_DIR=/etc/muster/blueprints MUSTER_SOFTWARE_DIR=/etc/muster/software muster init":
      "Into other folders"
  },
  input: {},
  *run() {
    const { blueprintsDir, softwareDir } = yield* loadServiceSettings
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
  }
})
