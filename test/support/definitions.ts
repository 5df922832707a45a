/** Folders of blueprints and software for one test. */

import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import { temporaryFolder } from "./temporaryFolder.ts"

/** Files by their path in the folder. */
export type Files = Readonly<Record<string, string | Uint8Array>>

export interface Definitions {
  readonly blueprints: string
  readonly software: string
  /** Settings that make the service read these folders. */
  readonly env: Record<string, string>
}

export const writeFiles = (folder: string, files: Files) =>
  Effect.sync(() => {
    mkdirSync(folder, { recursive: true })
    for (const [name, content] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true })
      writeFileSync(join(folder, name), content)
    }
  })

/** Writes both folders; they are removed with the scope. */
export const definitions = Effect.fnUntraced(function* (files: {
  readonly blueprints: Files
  readonly software: Files
}) {
  const root = yield* temporaryFolder
  const blueprints = join(root, "blueprints")
  const software = join(root, "software")
  yield* writeFiles(blueprints, files.blueprints)
  yield* writeFiles(software, files.software)
  const env = { MUSTER_BLUEPRINTS_DIR: blueprints, MUSTER_SOFTWARE_DIR: software }
  return { blueprints, software, env } satisfies Definitions
})

export interface SoftwareOptions {
  readonly invocation?: string
  /** Files that the install script writes into the base folder. */
  readonly files?: Readonly<Record<string, string>>
  /** Further keys of the install script; `script` follows `files`. */
  readonly install?: Readonly<Record<string, string | number | boolean>>
  readonly online?: string | null
  /** Further keys, e.g. `stop-command`. */
  readonly extra?: Readonly<Record<string, unknown>>
}

/** Returns the text of a software file. JSON is valid YAML, so nothing needs quoting. */
export const softwareFile = (id: string, options: SoftwareOptions = {}): string => {
  const { files = {}, install = {}, extra = {} } = options
  const script = Object.entries(files)
    .map(([name, text]) => `cat > ${name} <<'END_OF_FILE'\n${text}\nEND_OF_FILE\n`)
    .join("")
  const online = options.online === undefined ? "ready" : options.online
  const software = {
    id,
    name: id,
    invocation: options.invocation ?? "sh server.sh",
    "stop-command": "stop",
    ...(online === null ? {} : { "online-signal": online }),
    runtimes: ["process"],
    "install-script": {
      entrypoint: "sh",
      timeout: 60,
      ...install,
      script: `set -e\ncd "$INSTALL_DIR"\n${script}${install.script ?? ""}`
    },
    ...extra
  }
  return JSON.stringify({ software }, null, 1)
}

/** Returns the text of a blueprint file; `server` and `rest` are merged in. */
export const blueprintFile = (
  id: string,
  software: string,
  options: {
    readonly save?: boolean
    readonly server?: Readonly<Record<string, unknown>>
    readonly rest?: Readonly<Record<string, unknown>>
  } = {}
): string =>
  JSON.stringify(
    {
      blueprint: { id, name: id, type: "test" },
      server: { software, version: "1.0", limits: { memory_limit: 64 }, ...options.server },
      save: options.save ?? true,
      ...options.rest
    },
    null,
    1
  )

/** A server that prints `ready`, answers every line, and obeys `exit N`, `signal NAME` and `stop`. */
export const consoleServer = `echo ready
while read -r what arg; do
  case $what in
    stop) echo bye; exit 0 ;;
    exit) exit "$arg" ;;
    signal) kill -"$arg" $$ ;;
    *) echo "got $what $arg" ;;
  esac
done`
