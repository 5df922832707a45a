/** The commands of `muster`. A command is loaded when the command line names it: the rest would slow its start. */
import { Effect } from "effect"
import { Command } from "effect/cli"

const others = {
  init: Effect.promise(() => import("./init.ts").then(({ init }) => init)),
  serve: Effect.promise(() => import("./serve.ts").then(({ serve }) => serve)),
  node: Effect.promise(() => import("./node.ts").then(({ node }) => node)),
  servers: Effect.promise(() => import("./servers/servers.ts").then(({ servers }) => servers)),
  events: Effect.promise(() => import("./events.ts").then(({ events }) => events)),
  nodes: Effect.promise(() => import("./nodes/nodes.ts").then(({ nodes }) => nodes)),
  blueprints: Effect.promise(() => import("./blueprints/blueprints.ts").then(({ blueprints }) => blueprints)),
  rollouts: Effect.promise(() => import("./rollouts.ts").then(({ rollouts }) => rollouts)),
  software: Effect.promise(() => import("./software.ts").then(({ software }) => software)),
  webhooks: Effect.promise(() => import("./webhooks.ts").then(({ webhooks }) => webhooks)),
  keys: Effect.promise(() => import("./keys/keys.ts").then(({ keys }) => keys)),
  quotas: Effect.promise(() => import("./quotas.ts").then(({ quotas }) => quotas)),
  audit: Effect.promise(() => import("./audit.ts").then(({ audit }) => audit)),
  config: Effect.promise(() => import("./config.ts").then(({ config }) => config)),
  debug: Effect.promise(() => import("./debug.ts").then(({ debug }) => debug)),
  db: Effect.promise(() => import("./db.ts").then(({ db }) => db)),
  context: Effect.promise(() => import("./context.ts").then(({ context }) => context)),
  version: Effect.promise(() => import("./version.ts").then(({ version }) => version))
}

const all = Effect.suspend(() => Effect.all(Object.values(others)))

const commands = {
  ...others,
  completion: Effect.promise(() => import("./completion.ts").then(({ completion }) => completion(all)))
}

const isCommand = (word: string | undefined): word is keyof typeof commands =>
  word !== undefined && Object.hasOwn(commands, word)

/** Returns the commands that the first word needs: the named one, none, or all for help, suggestions and completions. */
const needed = (word: string | undefined) =>
  isCommand(word) ? [commands[word]] : word === "--version" ? [] : Object.values(commands)

export const musterCommand = (word: string | undefined) =>
  Effect.map(Effect.all(needed(word)), (subcommands) =>
    Command.make("muster").pipe(
      Command.withDescription("Control plane for game servers"),
      Command.withSubcommands(subcommands)
    )
  )
