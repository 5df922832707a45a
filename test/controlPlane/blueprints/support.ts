import { NodeServices } from "@effect/platform-node"
import { Effect, FileSystem, Layer, Logger } from "effect"
import { BlueprintStore, SoftwareStore } from "../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { type Folder, type Parsed, parseFile } from "../../../src/controlPlane/blueprints/parse/parse.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

/** Parses `text` as the file `a.yml` of a folder. */
export const parse = (text: string, folder: Folder = "blueprints"): Parsed =>
  parseFile(folder, "a.yml", new TextEncoder().encode(text))

/** Returns the problems of a file as `line:column: reason`. */
export const problemsOf = (text: string, folder: Folder = "blueprints"): ReadonlyArray<string> =>
  parse(text, folder).problems.map(({ column, line, reason }) => `${line}:${column}: ${reason}`)

/** Writes files below a folder, by relative path; creates missing folders. */
export const write = Effect.fnUntraced(function* (
  directory: string,
  files: Readonly<Record<string, string | Uint8Array>>
) {
  const fs = yield* FileSystem.FileSystem
  const paths = Object.entries(files).map(([file, contents]) => [`${directory}/${file}`, contents] as const)
  const parents = new Set(paths.map(([path]) => path.slice(0, path.lastIndexOf("/"))))
  yield* Effect.forEach(parents, (parent) => fs.makeDirectory(parent, { recursive: true }), { discard: true })
  yield* Effect.forEach(
    paths,
    ([path, contents]) =>
      typeof contents === "string" ? fs.writeFileString(path, contents) : fs.writeFile(path, contents),
    { concurrency: 32, discard: true }
  )
})

/** Two empty folders that are removed when the test ends. */
export const folders = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  const root = yield* temporaryFolder
  const directories = {
    blueprints: `${root}/blueprints`,
    software: `${root}/software`,
    outside: `${root}/outside`
  }
  for (const directory of Object.values(directories)) yield* fs.makeDirectory(directory)
  return directories
})

/**
 * Both stores over the folders; adds their log lines, as `Level message`, to `log`; `platform` replaces the file
 * system.
 */
export const stores = (
  directories: { readonly blueprints: string; readonly software: string },
  log: Array<string> = [],
  platform = NodeServices.layer
) =>
  BlueprintStore.layer({ directory: directories.blueprints }).pipe(
    Layer.provideMerge(SoftwareStore.layer({ directory: directories.software })),
    Layer.provideMerge(
      Logger.layer([Logger.make(({ logLevel, message }) => log.push(`${logLevel} ${String(message)}`))])
    ),
    Layer.provideMerge(platform)
  )

export const softwareFile = (id: string, more = "") => `software:\n  id: ${id}\n  invocation: run\n${more}`

export const paperFile = softwareFile(
  "paper",
  `  images: { java_21: "example/java:21", java_25: "example/java:25" }
  mappings: [{ java_21: ">=1.20.5 <=1.21.11" }, { java_25: ">=1.21.12" }]
`
)

export const blueprintFile = (id: string, more = "") =>
  `blueprint: { id: ${id} }\nserver: { software: paper, version: "1.21.11" }\n${more}`
