/** The fields of a server that people change, and the body of the PATCH that changes them. */
import type { Server } from "../../api/types.ts"
import type { Difference } from "../../parts/differences.tsx"
import {
  configsOf,
  type Field,
  type FieldKind,
  field,
  type Placed,
  pairsOf,
  pairsText,
  type Texts,
  valueOf
} from "../../parts/form.tsx"

const BLUEPRINT = "Leave it empty for the value of the blueprint."
const NO_LIMIT = "0: no limit."
const HOUR = 3600

export const labels = field("pairs", "labels", "Labels", "One key=value a line.")
export const configs = field(
  "configs",
  "overrides.configs",
  "Config patches",
  'As JSON, by file: {"server.properties": {"find": {"motd": "Hi"}}}. A file that no blueprint patches needs a "parser".'
)
export const version = field("text", "overrides.version", "Version", BLUEPRINT)
export const expiry = (hint: string): Field =>
  field("number", "expires_in", "Delete in, hours", hint, { unit: HOUR })
/** Whether the server is kept when it stops. */
export const save = (label: string): Field =>
  field("flag", "overrides.save", label, "", {
    choices: [
      ["", "As the blueprint says"],
      ["true", "Yes, it is saved"],
      ["false", "No, it is deleted"]
    ]
  })

const textOf = (value: unknown): string => (value === undefined || value === null ? "" : String(value))

/** The fields, each with its present value as a text. */
export const fields: ReadonlyArray<readonly [Field, (server: Server) => string]> = [
  [field("text", "name", "Name", "Up to 64 characters; empty: none."), ({ name }) => name ?? ""],
  [
    field("number", "overrides.limits.memory_limit", "Memory, MiB", NO_LIMIT),
    ({ limits }) => textOf(limits?.memory_limit)
  ],
  [
    field("number", "overrides.limits.cpu_limit", "CPU, percent of one thread", NO_LIMIT),
    ({ limits }) => textOf(limits?.cpu_limit)
  ],
  [
    field("number", "overrides.limits.disk_space", "Disk, MB", NO_LIMIT),
    ({ limits }) => textOf(limits?.disk_space)
  ],
  [version, ({ overrides, version }) => textOf(overrides?.version ?? version)],
  [save("Keep the server when it stops"), ({ overrides }) => textOf(overrides?.save)],
  [
    field("choice", "run", "After a restart of its node", "", {
      choices: [
        ["", "As the blueprint says"],
        ["unless_stopped", "Starts if it was up"],
        ["always", "Starts always, also after an upgrade"],
        ["manual", "Stays as it is"]
      ]
    }),
    ({ overrides }) => textOf(overrides?.run)
  ],
  [
    field("number", "overrides.stop_timeout", "Stop timeout, s", BLUEPRINT),
    ({ overrides }) => textOf(overrides?.stop_timeout)
  ],
  [expiry("Empty: no change; 0: never."), () => ""],
  [labels, (server) => pairsText(server.labels)],
  [
    field(
      "pairs",
      "overrides.env",
      "Environment variables",
      "One NAME=value a line; those of the blueprint are not listed."
    ),
    ({ overrides }) => pairsText(overrides?.env)
  ],
  [
    configs,
    ({ overrides }) => (overrides?.configs === undefined ? "" : JSON.stringify(overrides.configs, null, 1))
  ]
]

export interface FieldChange extends Difference, Placed {}

/** Returns the parts of a field that are changed by themselves: pairs, and the values and the parser of a config file. */
const partsOf = (kind: FieldKind, text: string): ReadonlyArray<Placed> =>
  kind === "pairs"
    ? Object.entries(pairsOf(text)).map(([name, to]) => ({ keys: [name], to }))
    : Object.entries(configsOf(text) ?? {}).flatMap(([file, patch]) =>
        Object.entries(patch).flatMap(([key, to]: readonly [string, unknown]) =>
          key === "find" && typeof to === "object" && to !== null
            ? Object.entries(to).map(([name, inner]) => ({ keys: [file, key, name], to: inner }))
            : [{ keys: [file, key], to }]
        )
      )

const partChanges = ({ kind, path }: Field, before: string, after: string): ReadonlyArray<FieldChange> => {
  const byPath = (text: string) =>
    new Map(partsOf(kind, text).map((part) => [part.keys.join("."), part] as const))
  const [old, now] = [byPath(before), byPath(after)]
  return [...new Map([...old, ...now])]
    .map(([name, { keys }]) => ({
      path: `${path}.${name}`,
      keys: [...path.split("."), ...keys],
      from: old.get(name)?.to,
      to: now.get(name)?.to ?? null
    }))
    .filter(({ from = null, to }) => JSON.stringify(from) !== JSON.stringify(to))
}

const valueIn = (one: Field, text: string): unknown =>
  text === "" || (one.path === "expires_in" && Number(text) === 0) ? null : valueOf(one, text)

export const changesOf = (server: Server, texts: Texts): ReadonlyArray<FieldChange> =>
  fields.flatMap(([one, read]): ReadonlyArray<FieldChange> => {
    const before = read(server)
    const after = texts[one.path] ?? before
    if (before === after) return []
    if (one.kind === "pairs" || one.kind === "configs") return partChanges(one, before, after)
    const from = one.path === "expires_in" ? server.expires_at : valueIn(one, before)
    return [{ path: one.path, keys: one.path.split("."), from, to: valueIn(one, after) }]
  })
