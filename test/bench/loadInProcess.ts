/** Runs {@link load} in a process of its own: `node loadInProcess.ts <options as JSON>` prints the result as JSON. */
import { execFile } from "node:child_process"
import { Effect } from "effect"
import { BenchFailed } from "./harness.ts"
import { type LoadOptions, type LoadResult, load } from "./load.ts"

/** The load of one request, repeated. */
type Options = Omit<LoadOptions, "request"> & { readonly request: ReturnType<LoadOptions["request"]> }

export const loadInProcess = (options: Options): Effect.Effect<LoadResult, BenchFailed> =>
  Effect.callback((resume) => {
    const child = execFile(
      process.execPath,
      [import.meta.filename, JSON.stringify(options)],
      (error, output, errors) =>
        resume(
          error === null
            ? Effect.sync(() => JSON.parse(output))
            : Effect.fail(new BenchFailed({ message: errors }))
        )
    )
    return Effect.sync(() => child.kill("SIGKILL"))
  })

if (import.meta.main) {
  const { request, ...options }: Options = JSON.parse(process.argv[2] ?? "")
  const result = await Effect.runPromise(load({ ...options, request: () => request }))
  process.stdout.write(JSON.stringify(result))
}
