import { Console, Effect } from "effect"
import { Argument, Command, Completions } from "effect/cli"

const arguments_ = {
  shell: Argument.Literals("shell", ["bash", "zsh", "fish"]).pipe(
    Argument.withDescription("bash, zsh or fish")
  )
} as const

/** `muster completion`: a script for a shell, with all other commands. */
export const completion = <E, R>(others: Effect.Effect<ReadonlyArray<Command.Command.Any>, E, R>) =>
  Command.make(
    "completion",
    arguments_,
    Effect.fn(function* ({ shell }) {
      const own = Command.make("completion", arguments_)
      const muster = Command.make("muster").pipe(Command.withSubcommands([...(yield* others), own]))
      yield* Console.log(Completions.generate("muster", shell, Completions.fromCommand(muster)))
    })
  ).pipe(
    Command.withShortDescription("Print a completion script for a shell"),
    Command.withDescription("Print a script with which bash, zsh or fish completes commands and flags."),
    Command.withExamples([
      { command: "source <(muster completion bash)", description: "In ~/.bashrc" },
      {
        command: "muster completion fish > ~/.config/fish/completions/muster.fish",
        description: "For fish"
      }
    ])
  )
