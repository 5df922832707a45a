import { Data, Effect, FileSystem, Path } from "effect"
import { describeProblems, type Problem } from "../parse/problem.ts"
import { parseSources } from "./parseSources.ts"
import { reasonOf } from "./reasons.ts"
import type { Source } from "./Source.ts"

/** The file of the sources is invalid. */
export class InvalidSources extends Data.TaggedError("InvalidSources")<{
  readonly setting: string
  readonly path: string
  /** The `file` of each problem is the file's name only. */
  readonly problems: ReadonlyArray<Problem>
  readonly reason?: string
}> {
  /** For the operator: names the setting and the path. */
  override get message(): string {
    if (this.reason !== undefined) return `${this.setting}: ${this.path} ${this.reason}`
    return describeProblems(this.problems.map((problem) => ({ ...problem, file: this.path })))
      .split("\n")
      .map((line) => `${this.setting}: ${line}`)
      .join("\n")
  }
  /** For a caller of the API: names no path. */
  get detail(): string {
    return this.reason === undefined
      ? describeProblems(this.problems)
      : `the file of the sources ${this.reason}`
  }
}

/** The setting that names the file. */
export const SETTING = "MUSTER_BLUEPRINT_SOURCES"

/** Reads the file; paths in it are relative to its folder. */
export const readSources = Effect.fn("readSources")(function* (file: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const bytes = yield* fs.readFile(file).pipe(
    Effect.mapError(
      (error) =>
        new InvalidSources({
          setting: SETTING,
          path: file,
          problems: [],
          reason: `cannot be read: ${reasonOf(error)}`
        })
    )
  )
  const { problems, sources } = parseSources(path.basename(file), bytes)
  if (problems.length > 0) return yield* new InvalidSources({ setting: SETTING, path: file, problems })
  const resolve = (named: string) => path.resolve(path.dirname(file), named)
  return sources.map(
    (source): Source => ({
      ...source,
      token:
        source.token !== undefined && "file" in source.token
          ? { file: resolve(source.token.file) }
          : source.token,
      ca_file: source.ca_file === undefined ? undefined : resolve(source.ca_file)
    })
  )
})
