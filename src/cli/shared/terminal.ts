/** The output of commands on a terminal and elsewhere, their secrets from files, and questions to the caller. */
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { stripVTControlCharacters, styleText } from "node:util"
import { Console, Effect, Layer } from "effect"
import { Flag, Prompt } from "effect/cli"
import { replaceHostile } from "../../contract/domain/NodeText.ts"
import { CommandError, whyNoFile, wrongUsage } from "./failures.ts"

const STANDARD_INPUT = "-"

/**
 * Enters the folder of the user, so that local paths of a command begin there: `npm run muster` runs in the folder of the
 * package. Settings with relative paths are read before.
 */
export const enterUserFolder: Effect.Effect<void, CommandError> = Effect.suspend(() => {
  const { INIT_CWD = "", npm_lifecycle_event } = process.env
  if (npm_lifecycle_event !== "muster" || INIT_CWD === "") return Effect.void
  return Effect.try({
    try: () => process.chdir(INIT_CWD),
    catch: (cause) => CommandError.failed(`cannot enter ${INIT_CWD}: ${whyNoFile(cause)}`)
  })
})

/** Reads the only line of a file with a secret, which the arguments of a process would show to other users. */
export const lineIn = (what: string, file: string) =>
  Effect.try({
    try: () => readFileSync(file === STANDARD_INPUT ? 0 : file, "utf8").trim(),
    catch: (cause) => CommandError.failed(`cannot read the ${what}: ${whyNoFile(cause)}`)
  }).pipe(
    Effect.filterOrFail(
      (line) => line !== "" && !/\s/.test(line),
      () => wrongUsage(`${file} has no ${what} on one line.`)
    )
  )

export const isTerminal = (): boolean => process.stdout.isTTY === true

export type Color = "red" | "green" | "yellow" | "gray"

const hasColors = ({ isTTY }: NodeJS.WriteStream): boolean => {
  const { NO_COLOR = "", TERM } = process.env
  return isTTY && NO_COLOR === "" && TERM !== "dumb"
}

/** Returns a text in a colour if the stream is a terminal with colours, and `NO_COLOR` is unset. */
export const paint = (
  text: string,
  color: Color | undefined,
  stream: NodeJS.WriteStream = process.stdout
): string =>
  color === undefined || !hasColors(stream) ? text : styleText(color, text, { validateStream: false })

/** All that a text does to a terminal: colours and weights, line breaks and tabs. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: sequences that act on a terminal begin with ESC
const harmless = /(\u001b\[[0-9;:]*m|[\n\t])/

/**
 * Returns a text without control of the terminal: players may write names and lines that would type answers into it.
 */
export const shown = (text: string): string =>
  text
    .split(harmless)
    .map((part, at) => (at % 2 === 1 ? part : replaceHostile(stripVTControlCharacters(part), "")))
    .join("")

/** Prints {@link shown} texts only, whatever their origin. */
export const SafeConsole = Layer.effect(
  Console.Console,
  Effect.map(Console.Console, (console) => ({
    ...console,
    log: (text: unknown) => console.log(shown(String(text))),
    error: (text: unknown) => console.error(shown(String(text)))
  }))
)

/** Prints a step of work that takes time, to standard error: standard output has the result. */
export const note = (text: string) => Console.error(text)

/** Whether the caller can be asked. */
export const isInteractive = (): boolean => process.stdin.isTTY === true && isTerminal()

export const yesFlag = Flag.Boolean("yes").pipe(
  Flag.withAlias("y"),
  Flag.withDescription("Do not ask for confirmation"),
  Flag.withDefault(false)
)

/**
 * Asks before a command destroys something.
 * @error CommandError declined (failed), or no terminal and no `--yes` (usage)
 */
export const confirm = Effect.fnUntraced(function* (question: string, yes: boolean) {
  if (yes) return
  if (!isInteractive()) {
    return yield* wrongUsage(`${question} Repeat the command with --yes: there is no terminal to confirm on.`)
  }
  const agreed = yield* Prompt.run(Prompt.Confirm({ message: shown(question), initial: false }))
  if (!agreed) return yield* CommandError.failed("Nothing was changed.")
})

const NAMED = 5

/** Names the first of some paths for a question, and counts the others. */
export const firstOf = (names: ReadonlyArray<string>): string =>
  `${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ` and ${names.length - NAMED} more` : ""}`

/**
 * Runs a program, which has the terminal for itself: Ctrl-C is a key there. Returns its exit status or signal; empty: 0.
 * @param name of the program in messages
 * @error CommandError the program cannot be run
 */
export const runProgram = Effect.fnUntraced(function* (
  name: string,
  program: string,
  args: ReadonlyArray<string>,
  env: NodeJS.ProcessEnv = process.env
) {
  const before = process.listeners("SIGINT")
  const ignore = () => {}
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      process.removeAllListeners("SIGINT")
      process.on("SIGINT", ignore)
    }),
    () =>
      Effect.sync(() => {
        process.off("SIGINT", ignore)
        for (const listener of before) process.on("SIGINT", listener)
      })
  )
  return yield* Effect.callback<string, CommandError>((resume) => {
    const child = spawn(program, args, { stdio: "inherit", env })
    child.once("error", (cause) => resume(Effect.fail(CommandError.failed(`cannot run ${name}: ${cause}`))))
    child.once("close", (code, signal) => resume(Effect.succeed(code === 0 ? "" : `${signal ?? code}`)))
    return Effect.sync(() => child.kill())
  })
}, Effect.scoped)
