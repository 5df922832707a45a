import { Console, type Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { type NamedQuota, QuotaName, type QuotaUse } from "../contract/domain/Key.ts"
import { command, given, group, numberFlag, textArgument } from "./shared/command.ts"
import { wrongUsage } from "./shared/failures.ts"
import { ask, CommandClient } from "./shared/musterClient.ts"
import { type Listing, listCommand, objectCommand, outputFlags, printOne, wide } from "./shared/output.ts"
import { confirm, yesFlag } from "./shared/terminal.ts"

const quotaArgument = textArgument("quota", "Name of the quota")

const limits = {
  servers: ["max_servers", "Most servers", ""],
  memory: ["max_memory", "Most memory, in MiB: the sum of the memory limits", " MiB"],
  cpu: ["max_cpu", "Most CPU, in percent of one thread: the sum of the CPU limits", " %"],
  disk: ["max_disk", "Most disk, in MB: the sum of the disk limits", " MB"]
} as const

const useOf = (name: keyof QuotaUse) => (quota: NamedQuota) => {
  const [field, , unit] = limits[name]
  const most = quota[field]
  return `${quota.used[name]}${most === undefined ? "" : ` of ${most}`}${unit}`
}

const listing: Listing<NamedQuota> = {
  columns: {
    name: ({ name }) => name,
    servers: useOf("servers"),
    memory: useOf("memory"),
    cpu: useOf("cpu"),
    disk: useOf("disk"),
    created: wide(({ created_at }) => created_at)
  }
}

const maximum = (name: keyof typeof limits) => numberFlag(`max-${name}`, limits[name][1])
const maxima = {
  servers: maximum("servers"),
  memory: maximum("memory"),
  cpu: maximum("cpu"),
  disk: maximum("disk")
}
type Chosen = { readonly [K in keyof typeof limits]: Option.Option<number> }

const chosenLimits = ({ cpu, disk, memory, servers }: Chosen) => ({
  ...given({ max_servers: servers, max_memory: memory, max_cpu: cpu, max_disk: disk })
})

const create = command("create", {
  description:
    "Create a quota that keys share: `muster keys create --quota` gives it to a key. The servers of all of its keys count together.",
  examples: {
    "muster quotas create team-a --max-servers 10 --max-memory 20480": "Ten servers with 20 GiB of memory",
    "muster quotas create team-b --max-cpu 800 --max-disk 100000": "Eight threads and 100 GB of disk"
  },
  input: {
    name: textArgument("name", "Name of the quota, such as team-a").pipe(Argument.withSchema(QuotaName)),
    ...maxima,
    ...outputFlags
  },
  *run({ name, ...input }) {
    const payload = { name, ...chosenLimits(input) }
    if (Object.keys(payload).length === 1)
      return yield* wrongUsage("Set at least one limit, such as with --max-servers 10.")
    yield* printOne(input, listing, yield* ask((muster) => muster.quotas.create({ payload })))
  }
})

const list = listCommand(
  listing,
  ask((muster) => muster.quotas.list()),
  "No quotas. `muster quotas create <name>` makes one.",
  {
    description: "List quotas with their use",
    examples: {
      "muster quotas list": "All quotas with their use",
      "muster quotas list --json": "For programs"
    }
  }
)

const show = objectCommand(
  "show",
  quotaArgument,
  listing,
  (quota) => ask((muster) => muster.quotas.get({ params: { quota } })),
  {
    description: "Show a quota with its use",
    examples: {
      "muster quotas show team-a": "Its limits and their use",
      "muster quotas show team-a --json": "As JSON"
    }
  }
)

const patch = command("patch", {
  description: "Change the limits of a quota. They apply at once; servers that exist beyond them stay.",
  examples: {
    "muster quotas patch team-a --max-servers 20": "A larger quota",
    "muster quotas patch team-a --without max-cpu": "Without a limit of CPU"
  },
  input: {
    quota: quotaArgument,
    ...maxima,
    without: Flag.Literals("without", ["max-servers", "max-memory", "max-cpu", "max-disk"]).pipe(
      Flag.withDescription("Remove this limit; repeatable"),
      Flag.between(0, 4)
    ),
    ...outputFlags
  },
  *run({ quota, without, ...input }) {
    const removed = without.map((name) => [name.replace("-", "_"), null] as const)
    const payload = { ...chosenLimits(input), ...Object.fromEntries(removed) }
    if (Object.keys(payload).length === 0)
      return yield* wrongUsage("Say what to change, such as with --max-servers 20.")
    const changed = yield* ask((muster) => muster.quotas.patch({ params: { quota }, payload }))
    yield* printOne(input, listing, changed)
  }
})

const remove = command("delete", {
  description: "Delete a quota. Ends with 2 if a valid key has it. Servers stay.",
  examples: {
    "muster quotas delete team-a": "After confirmation",
    "muster quotas delete team-a --yes": "Without a question"
  },
  input: { quota: quotaArgument, yes: yesFlag },
  *run({ quota, yes }) {
    yield* confirm(`Delete the quota ${quota}?`, yes)
    yield* ask((muster) => muster.quotas.remove({ params: { quota } }))
    yield* Console.log(`Quota ${quota} is deleted.`)
  }
})

export const quotas = group("quotas", {
  short: "Limit the servers that keys create together",
  description: "Create, list and change quotas that keys share. Needs a key of scope AppAdmin.",
  subcommands: [list, create, show, patch, remove]
}).pipe(Command.provide(CommandClient))
