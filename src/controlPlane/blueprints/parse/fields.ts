export interface Shape<K extends string> {
  readonly where: string
  /** The known keys, in their documented spelling. */
  readonly keys: ReadonlyArray<K>
  /** Keys that are accepted and ignored: files for SLS have them. */
  readonly ignored: ReadonlyArray<string>
}

export const kinds = ["blueprint", "mixin", "software"] as const
export type Kind = (typeof kinds)[number]

const shape = <const K extends string>(
  where: string,
  keys: ReadonlyArray<K>,
  ignored: ReadonlyArray<string> = []
): Shape<K> => ({ where, keys, ignored })

/** Every mapping with known keys in a definition file; the READMEs of `blueprints` and `software` list the keys. */
export const shapes = {
  blueprintFile: shape(
    "",
    ["blueprint", "includes", "server", "state", "save", "start", "annotations"],
    ["world", "traits"]
  ),
  blueprint: shape("blueprint.", ["id", "name", "type"]),
  mixinFile: shape("", ["mixin", "extends", "server", "state", "annotations"], ["world", "traits"]),
  mixin: shape("mixin.", ["id", "description"]),
  server: shape(
    "server.",
    [
      "software",
      "version",
      "image",
      "limits",
      "ports",
      "stop_timeout",
      "configs",
      "placement",
      "restart",
      "run",
      "priority"
    ],
    ["path", "allowed_clients"]
  ),
  limits: shape("limits.", [
    "memory_limit",
    "swap",
    "io_weight",
    "cpu_limit",
    "disk_space",
    "threads",
    "oom_disabled"
  ]),
  config: shape("configs.*.", ["parser", "find"]),
  placement: shape("server.placement.", ["locations", "anti_affinity"]),
  restart: shape("server.restart.", ["on_crash", "delay", "max_delay", "max_per_hour", "reset_after"]),
  state: shape("state.", ["volumes", "mounts", "copy", "env", "env-allow"], ["hooks"]),
  volume: shape("state.volumes.", ["name", "source", "target", "mode"]),
  mount: shape("state.mounts.", ["source", "target", "mode"]),
  copy: shape("state.copy.", ["source", "target", "when"]),
  softwareFile: shape("", ["software"], ["update"]),
  software: shape(
    "software.",
    [
      "id",
      "name",
      "images",
      "mappings",
      "invocation",
      "stop-command",
      "stop-timeout",
      "online-signal",
      "start-timeout",
      "clean-exit",
      "install-script",
      "limits",
      "configs",
      "runtimes",
      "terminal"
    ],
    ["update"]
  ),
  installScript: shape("install-script.", [
    "entrypoint",
    "script",
    "skip_scripts",
    "timeout",
    "warmup",
    "warmup-timeout",
    "warmup-retries",
    "warmup-failure-policy",
    "post-warmup-script",
    "post-warmup-timeout"
  ])
} as const

type Places = ReadonlyArray<readonly [prefix: string, shape: Shape<string>]>

const { blueprint, blueprintFile, installScript, limits, mixin, mixinFile, placement, restart } = shapes
const { server, software, softwareFile, state } = shapes

const composed: Places = [
  ["server.", server],
  ["state.", state],
  ["server.limits.", limits],
  ["server.placement.", placement],
  ["server.restart.", restart]
]

/** The mappings with known keys of each kind of file, except for entries of lists. */
const placesOf: Readonly<Record<Kind, Places>> = {
  blueprint: [["", blueprintFile], ["blueprint.", blueprint], ...composed],
  mixin: [["", mixinFile], ["mixin.", mixin], ...composed],
  software: [
    ["", softwareFile],
    ["software.", software],
    ["software.limits.", limits],
    ["software.install-script.", installScript]
  ]
}

/** `-` and `_` are the same in known keys. */
export const normal = (key: string): string => key.replaceAll("-", "_")

export const placeOf = (key: string, own: Kind): string | undefined => {
  for (const kind of [own, ...kinds.filter((other) => other !== own)]) {
    for (const [prefix, { keys }] of placesOf[kind]) {
      const found = keys.find((known) => normal(known) === normal(key))
      const where = kind !== own ? ` of a ${kind} file` : prefix === "" ? " at the top level" : ""
      if (found !== undefined) return `\`${prefix}${found}\`${where}`
    }
  }
  return undefined
}
