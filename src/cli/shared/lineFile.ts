import { readFileSync } from "node:fs"
import { Effect } from "effect"
import { CommandError, whyNoFile, wrongUsage } from "./failures.ts"

const STANDARD_INPUT = "-"

/** Reads the only line of a file with a secret, which the arguments of a process would show to other users. */
export const lineIn = (what: string, file: string) =>
  Effect.try({
    try: () => readFileSync(file === STANDARD_INPUT ? 0 : file, "utf8").trim(),
    catch: (cause) =>
      new CommandError({ status: "failed", message: `cannot read the ${what}: ${whyNoFile(cause)}` })
  }).pipe(
    Effect.filterOrFail(
      (line) => line !== "" && !/\s/.test(line),
      () => wrongUsage(`${file} has no ${what} on one line.`)
    )
  )
