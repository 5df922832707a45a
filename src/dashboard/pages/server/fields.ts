/** The fields of a server that people change, as texts, and the body of the PATCH that changes them. */
import type { Server } from "../../api/types.ts"
import type { Difference } from "../../parts/differences.tsx"
import { type FieldKind, numberIn } from "../../parts/fieldInput.tsx"

export interface Field {
  readonly path: string
  readonly label: string
  readonly hint?: string
  readonly kind: FieldKind
  readonly choices?: ReadonlyArray<readonly [string, string]>
  /** The present value as a text; of pairs: one `name=value` a line. */
  readonly read: (server: Server) => string
}

export const pairsText = (pairs: Readonly<Record<string, string>> = {}): string =>
  Object.entries(pairs)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n")

/** Reads the patches of config files by file, if the text has their form. */
export const configsOf = (text: string): Readonly<Record<string, object>> | undefined => {
  if (text.trim() === "") return {}
  try {
    const value: unknown = JSON.parse(text)
    const isObject = (one: unknown) => typeof one === "object" && one !== null && !Array.isArray(one)
    // Checked: an object of objects.
    return isObject(value) && Object.values(value as object).every(isObject)
      ? (value as Record<string, object>)
      : undefined
  } catch {
    return undefined
  }
}

export const CONFIGS_HINT =
  'As JSON, by file: {"server.properties": {"find": {"motd": "Hi"}}}. A file that no blueprint patches needs a "parser".'

/** Returns why a text is not accepted, if so. */
export const problemOf = (kind: FieldKind, text: string): string | undefined => {
  if (kind === "number" && !/^(\d+\.?\d*|\.\d+)?$/.test(text.trim())) return "Enter a number, such as 512."
  return kind === "configs" && configsOf(text) === undefined
    ? 'Enter JSON such as {"server.properties": {"find": {"motd": "Hi"}}}.'
    : undefined
}

const overrideText = (value: unknown): string => (value === undefined || value === null ? "" : String(value))

/** Whether a server is kept when it stops. */
export const saveChoices = [
  ["", "As the blueprint says"],
  ["true", "Yes, it is saved"],
  ["false", "No, it is deleted"]
] as const

export const fields: ReadonlyArray<Field> = [
  {
    path: "name",
    label: "Name",
    kind: "text",
    hint: "Up to 64 characters; empty: none.",
    read: ({ name }) => name ?? ""
  },
  {
    path: "overrides.limits.memory_limit",
    label: "Memory, MiB",
    kind: "number",
    hint: "0: no limit.",
    read: ({ limits }) => overrideText(limits?.memory_limit)
  },
  {
    path: "overrides.limits.cpu_limit",
    label: "CPU, percent of one thread",
    kind: "number",
    hint: "0: no limit.",
    read: ({ limits }) => overrideText(limits?.cpu_limit)
  },
  {
    path: "overrides.limits.disk_space",
    label: "Disk, MB",
    kind: "number",
    hint: "0: no limit.",
    read: ({ limits }) => overrideText(limits?.disk_space)
  },
  {
    path: "overrides.version",
    label: "Version",
    kind: "text",
    hint: "Empty: that of the blueprint.",
    read: ({ overrides, version }) => overrideText(overrides?.version ?? version)
  },
  {
    path: "overrides.save",
    label: "Keep the server when it stops",
    kind: "choice",
    choices: saveChoices,
    read: ({ overrides }) => overrideText(overrides?.save)
  },
  {
    path: "run",
    label: "After a restart of its node",
    kind: "choice",
    choices: [
      ["", "As the blueprint says"],
      ["unless_stopped", "Starts if it was up"],
      ["always", "Starts always, also after an upgrade"],
      ["manual", "Stays as it is"]
    ],
    read: ({ overrides }) => overrideText(overrides?.run)
  },
  {
    path: "overrides.stop_timeout",
    label: "Stop timeout, s",
    kind: "number",
    hint: "Empty: that of the blueprint.",
    read: ({ overrides }) => overrideText(overrides?.stop_timeout)
  },
  {
    path: "expires_in",
    label: "Delete in, hours",
    kind: "number",
    hint: "Empty: no change; 0: never.",
    read: () => ""
  },
  {
    path: "labels",
    label: "Labels",
    kind: "pairs",
    hint: "One key=value a line.",
    read: ({ labels }) => pairsText(labels)
  },
  {
    path: "overrides.env",
    label: "Environment variables",
    kind: "pairs",
    hint: "One NAME=value a line; those of the blueprint are not listed.",
    read: ({ overrides }) => pairsText(overrides?.env)
  },
  {
    path: "overrides.configs",
    label: "Config patches",
    kind: "configs",
    hint: CONFIGS_HINT,
    read: ({ overrides }) =>
      overrides?.configs === undefined ? "" : JSON.stringify(overrides.configs, null, 1)
  }
]

export const pairsOf = (text: string): ReadonlyMap<string, string> =>
  new Map(
    text
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "")
      .map((line) => {
        const at = line.indexOf("=")
        return at === -1 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()]
      })
  )

const valueOf = ({ kind, path }: Field, text: string): unknown => {
  if (path === "expires_in") return Number(text) === 0 ? null : numberIn(text, 3600)
  if (text === "") return null
  if (kind === "number") return numberIn(text)
  return kind === "choice" ? text === "true" : text
}

export interface FieldChange extends Difference {
  readonly keys: ReadonlyArray<string>
}

/** A part of a field that is changed by itself: a pair, or a value or the parser of a config file. */
interface Part {
  readonly keys: ReadonlyArray<string>
  readonly value: unknown
}

const partsOf = (kind: FieldKind, text: string): ReadonlyArray<Part> =>
  kind === "pairs"
    ? [...pairsOf(text)].map(([name, value]) => ({ keys: [name], value }))
    : Object.entries(configsOf(text) ?? {}).flatMap(([file, patch]) =>
        Object.entries(patch).flatMap(([key, value]: readonly [string, unknown]) =>
          key === "find" && typeof value === "object" && value !== null
            ? Object.entries(value).map(([name, inner]) => ({ keys: [file, key, name], value: inner }))
            : [{ keys: [file, key], value }]
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
      from: old.get(name)?.value,
      to: now.get(name)?.value ?? null
    }))
    .filter(({ from = null, to }) => JSON.stringify(from) !== JSON.stringify(to))
}

export const changesOf = (
  server: Server,
  texts: Readonly<Record<string, string>>
): ReadonlyArray<FieldChange> =>
  fields.flatMap((field): ReadonlyArray<FieldChange> => {
    const before = field.read(server)
    const after = texts[field.path] ?? before
    if (before === after) return []
    if (field.kind === "pairs" || field.kind === "configs") return partChanges(field, before, after)
    const from = field.path === "expires_in" ? server.expires_at : valueOf(field, before)
    return [{ path: field.path, keys: field.path.split("."), from, to: valueOf(field, after) }]
  })

export const bodyOf = (changes: ReadonlyArray<FieldChange>): Record<string, unknown> => {
  const body: Record<string, unknown> = {}
  for (const { keys, to } of changes) {
    let place = body
    for (const key of keys.slice(0, -1)) {
      const inner: Record<string, unknown> = (place[key] as Record<string, unknown> | undefined) ?? {}
      place[key] = inner
      place = inner
    }
    const last = keys.at(-1)
    if (last !== undefined) place[last] = to
  }
  return body
}
