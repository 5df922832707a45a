/** Overrides and labels on the command line: `--set limits.memory_limit=512`, `--env K=V`, `--label k=v`. */
import { Duration, Effect, Option, Schema } from "effect"
import { Flag } from "effect/cli"
import { LabelKey } from "../../contract/domain/Labels.ts"
import { type Mistake, mistakesOf } from "../../contract/domain/mistakes.ts"
import { nearest } from "../../contract/domain/nearest.ts"
import {
  EnvName,
  LimitOverrides,
  Overrides,
  OverridesChange,
  OverridesInput,
  RestartOverrides
} from "../../contract/domain/Overrides.ts"
import { command, severalFlag, textFlag } from "../shared/command.ts"
import { wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { serverArgument, serverNamed } from "../shared/named.ts"
import { outputFlags } from "../shared/output.ts"
import { note } from "../shared/terminal.ts"
import { DurationText, durationOf } from "../shared/times.ts"
import { printServer } from "./listing.ts"

/** Returns the message of a mistake; for an empty value with the way to remove an override. */
const messageOf = ({ message, value }: Mistake): string =>
  message
    .replace("Expected boolean", "Expected true or false")
    .replace("Expected", "expected")
    .replace(/ \| null$/, value === "" ? "; `muster servers patch --unset` removes it" : "")

const pairs = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.withMetavar("key=value"),
    Flag.withDescription(description),
    Flag.between(0, 256)
  )

export const setFlag = pairs(
  "set",
  "An override, repeatable: limits.memory_limit=512, save=true, version=1.21.4, configs[server.properties].find.motd=Hello"
)

export const envFlag = pairs("env", "A variable of the server, repeatable: MOTD=Hello")

export const labelFlag = pairs("label", "A label, repeatable: team=a")

const pairOf = (flag: string, text: string) => {
  const at = text.indexOf("=")
  return at < 1
    ? Effect.fail(wrongUsage(`--${flag} ${text}: expected key=value.`))
    : Effect.succeed([text.slice(0, at), text.slice(at + 1)] as const)
}

/** Reads `key=value` whose key must meet a schema: an invalid key of a record is an unknown field to its schema. */
const namedPairOf = Effect.fnUntraced(function* (flag: string, text: string, schema: Schema.Codec<string>) {
  const pair = yield* pairOf(flag, text)
  yield* Schema.decodeUnknownEffect(schema)(pair[0]).pipe(
    Effect.mapError(({ issue }) =>
      wrongUsage(`--${flag} ${pair[0]}: ${mistakesOf(issue, pair[0]).map(messageOf).join("; ")}.`)
    )
  )
  return pair
})

export const labelsOf = (labels: ReadonlyArray<string>) =>
  Effect.map(
    Effect.forEach(labels, (text) => namedPairOf("label", text, LabelKey)),
    (all): Readonly<Record<string, string>> => Object.fromEntries(all)
  )

/** The steps of a path such as `limits.memory_limit` or `configs[server.properties].find.motd`; undefined: malformed. */
const stepsOf = (path: string): ReadonlyArray<string> | undefined =>
  /^[^.[\]]+(?:\.[^.[\]]+|\[[^\]]+\])*$/.test(path)
    ? [...path.matchAll(/[^.[\]]+(?![^[]*\])|(?<=\[)[^\]]+/g)].map(([step]) => step)
    : undefined

/** The overrides whose values are texts, also if they look like numbers. */
const isText = ([first, second]: ReadonlyArray<string>): boolean =>
  ["version", "software", "image", "env"].includes(first ?? "") ||
  (first === "limits" && second === "threads") ||
  second === "parser"

const jsonOf = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

interface Tree {
  [step: string]: unknown
}

const isTree = (value: unknown): value is Tree =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Puts a value at the end of a path. The path may not lead through a value. */
const put = (tree: Tree, [step = "", ...rest]: ReadonlyArray<string>, value: unknown): boolean => {
  if (rest.length === 0) {
    tree[step] = value
    return true
  }
  const below = Object.hasOwn(tree, step) ? tree[step] : undefined
  if (below !== undefined && !isTree(below)) return false
  const next: Tree = below ?? Object.create(null)
  tree[step] = next
  return put(next, rest, value)
}

const ownFlags: Readonly<Record<string, string>> = {
  labels: "--label KEY=VALUE",
  label: "--label KEY=VALUE",
  name: "--name",
  expires_in: "--expires",
  expires: "--expires",
  node_id: "--node of `muster servers create`",
  start: "--start of `muster servers create`"
}

/** The paths of fields by their last names. */
const FIELDS = new Map([
  ...Object.keys(Overrides.fields).map((name) => [name, name] as const),
  ...Object.keys(LimitOverrides.fields).map((name) => [name, `limits.${name}`] as const),
  ...Object.keys(RestartOverrides.fields).map((name) => [name, `restart.${name}`] as const)
])

const SETTABLE = Object.keys(Overrides.fields)
  .map((name) => {
    switch (name) {
      case "limits":
        return `limits.NAME (${Object.keys(LimitOverrides.fields).join(", ")})`
      case "configs":
        return "configs[FILE].find.KEY"
      default:
        return name === "env" ? "env.NAME" : name
    }
  })
  .join(", ")

/** Returns why a path is no override; undefined: it is one. */
const whyNot = (steps: ReadonlyArray<string>): string | undefined => {
  const [first = "", second, third = "find"] = steps
  const isKnown =
    Object.hasOwn(Overrides.fields, first) &&
    (first !== "limits" || second === undefined || Object.hasOwn(LimitOverrides.fields, second))
  if (first === "configs" && !["find", "parser"].includes(third))
    return "expected configs[FILE].find.KEY, with the file in brackets: configs[server.properties].find.motd."
  if (isKnown) return undefined
  const flag = Object.hasOwn(ownFlags, first) ? ownFlags[first] : undefined
  const near = flag === undefined ? nearest(steps.at(-1) ?? "", [...FIELDS.keys()]) : undefined
  if (near !== undefined) return `this is no override; did you mean ${FIELDS.get(near)}?`
  return flag === undefined
    ? `this is no override. Overrides are ${SETTABLE}.`
    : `this is no override: use ${flag}.`
}

interface Given {
  readonly set: ReadonlyArray<string>
  readonly env: ReadonlyArray<string>
  readonly unset?: ReadonlyArray<string>
}

/** Returns the object that the flags describe; undefined: they describe none. */
const treeOf = Effect.fnUntraced(function* ({ env, set, unset = [] }: Given) {
  if (env.length + set.length + unset.length === 0) return undefined
  const tree: Tree = Object.create(null)
  const entries = [
    ...(yield* Effect.forEach(set, (text) => pairOf("set", text))).map(
      ([path, value]) => [path, value, "set"] as const
    ),
    ...unset.map((path) => [path, null, "unset"] as const)
  ]
  for (const [path, value, flag] of entries) {
    const steps = stepsOf(path)
    const reason = steps === undefined ? undefined : whyNot(steps)
    if (reason !== undefined) return yield* wrongUsage(`--${flag} ${path}: ${reason}`)
    const parsed = steps === undefined || value === null || isText(steps) ? value : jsonOf(value)
    if (steps === undefined || !put(tree, steps, parsed)) {
      return yield* wrongUsage(
        `--${flag} ${path}: expected a path such as limits.memory_limit or configs[server.properties].find.motd.`
      )
    }
  }
  for (const text of env) {
    const [name, value] = yield* namedPairOf("env", text, EnvName)
    put(tree, ["env", name], value)
  }
  return tree
})

/** Returns a path as `--set` takes it: a name with a dot is in brackets. */
const pathOf = (steps: ReadonlyArray<string>): string =>
  steps.map((step, at) => (/[.[\]]/.test(step) ? `[${step}]` : at === 0 ? step : `.${step}`)).join("")

const checked =
  <S extends Schema.Codec<unknown, unknown>>(schema: S) =>
  (tree: Tree): Effect.Effect<S["Type"], ReturnType<typeof wrongUsage>> =>
    // Through JSON: the schema expects plain objects.
    Schema.decodeUnknownEffect(schema)(JSON.parse(JSON.stringify(tree)), {
      errors: "all",
      onExcessProperty: "error"
    }).pipe(
      Effect.mapError(({ issue }) => {
        const reasons = mistakesOf(issue, tree).map(
          (mistake) => `${pathOf(mistake.path)}: ${messageOf(mistake)}`
        )
        return wrongUsage(`the overrides are invalid: ${reasons.join("; ")}.`)
      })
    )

/** Reads the overrides of a creation; undefined: none. */
export const overridesOf = Effect.fnUntraced(function* (given: Given) {
  const tree = yield* treeOf(given)
  return tree === undefined ? undefined : yield* checked(OverridesInput)(tree)
})

/** Reads the changes of overrides; undefined: none. */
export const overridesChangeOf = Effect.fnUntraced(function* (given: Given) {
  const tree = yield* treeOf(given)
  return tree === undefined ? undefined : yield* checked(OverridesChange)(tree)
})

const isDuration = Schema.is(DurationText)

const NEVER = "never"

const durationIn = (text: string) =>
  Option.map(Option.liftPredicate(text, isDuration), (valid) => Duration.toSeconds(durationOf(valid)))

export const patch = command("patch", {
  description:
    "Change limits, variables, config values, labels, name or expiry of one server. A server that is up gets changes of its definition at its next start.",
  short: "Change limits, variables, labels, name or expiry of a server",
  examples: {
    "muster servers patch survival-1 --set limits.memory_limit=4096": "More memory",
    "muster servers patch k7f --label team=b --unlabel season --expires never": "Labels and expiry"
  },
  input: {
    server: serverArgument,
    name: textFlag("name", "A new name; empty: no name"),
    label: labelFlag,
    unlabel: severalFlag("unlabel", "The key of a label to remove, repeatable"),
    set: setFlag,
    unset: severalFlag("unset", "An override to remove, repeatable: limits.memory_limit, env.MOTD"),
    env: envFlag,
    expires: Flag.String("expires").pipe(
      Flag.withDescription("Delete the server after this time from now: 30m, 12h, 7d; or `never`"),
      Flag.filter(
        (text) => text === NEVER || Option.isSome(durationIn(text)),
        () => "a time such as 12h, or never"
      ),
      Flag.optional
    ),
    ...outputFlags
  },
  *run(input) {
    const { env, expires, label, name, server, set, unlabel, unset, ...flags } = input
    const overrides = yield* overridesChangeOf({ set, env, unset })
    const labels = {
      ...(yield* labelsOf(label)),
      ...Object.fromEntries(unlabel.map((key) => [key, null]))
    }
    const payload = {
      ...(overrides === undefined ? {} : { overrides }),
      ...(Object.keys(labels).length === 0 ? {} : { labels }),
      ...(Option.isSome(name) ? { name: name.value === "" ? null : name.value } : {}),
      ...(Option.isSome(expires) ? { expires_in: Option.getOrNull(durationIn(expires.value)) } : {})
    }
    if (Object.keys(payload).length === 0) {
      return yield* wrongUsage(
        "Say what to change: --set, --unset, --env, --label, --unlabel, --name or --expires."
      )
    }
    const { id } = yield* serverNamed(server)
    yield* ask((muster) => muster.servers.patch({ params: { server: id }, payload }))
    const { pending = [] } = yield* printServer(flags, id)
    if (pending.length > 0) yield* note(`At its next start, the server gets: ${pending.join(", ")}`)
  }
})
