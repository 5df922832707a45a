import { Console, Effect } from "effect"
import { Argument, Command, Completions } from "effect/cli"
import { documented } from "./shared/documented.ts"

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
    documented(
      "Print a script with which bash, zsh or fish completes commands and flags.",
      {
        "source <(muster completion bash)": "In ~/.bashrc",
        "muster completion fish > ~/.config/fish/completions/muster.fish": "For fish"
      },
      "Print a completion script for a shell"
    )
  )
