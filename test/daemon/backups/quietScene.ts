/** Servers that hold still for backups, and their consoles. */
import { readFileSync, truncateSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import type { CreateTask } from "../../../src/contract/domain/Backup.ts"
import type { Quiesce } from "../../../src/contract/domain/Quiesce.ts"
import type { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import { until } from "../../support/eventually.ts"
import { filesOf, put, type ScenePlace } from "../access/scene.ts"
import { type Harness, specOf } from "../support.ts"
import { createOf, newId } from "./scene.ts"

/** Saves as Minecraft does, unless there is a file `mute`, which is printed instead; each line of its console is printed. */
const program = `sh -c 'echo ready; while read -r line; do
  echo "got $line";
  case "$line" in
    stop) while [ -e slow ]; do sleep 0.05; done; exit 0 ;;
    "save-all flush") if [ -e mute ]; then cat mute; else echo saved > level.dat; echo "Saved the game"; fi ;;
  esac;
done'`.replaceAll("\n", " ")

export const quietProcess = { ...specOf().definition.process, invocation: program }

export const commands: Extract<Quiesce, { readonly by: "commands" }> = {
  by: "commands",
  before: ["save-off", "save-all flush"],
  until: "Saved the game",
  timeout: 20,
  after: ["save-on"],
  on_failure: "continue"
}

export const quiescing = (quiesce: Quiesce): CreateTask => ({ ...createOf(newId()), quiesce })

/** What a server has got, and its state on the node. `folder`: that of the server. */
export const watched = (folder: string) => ({
  /** The lines that the server has got. */
  got: () =>
    readFileSync(join(folder, "console.log"), "utf8")
      .split("\n")
      .flatMap((line) => (line.startsWith("got ") ? [line.slice("got ".length)] : [])),
  state: () => JSON.parse(readFileSync(join(folder, "server.json"), "utf8"))
})

/** The bytes of the holes of {@link slow}. */
export const HOLES = 64 * 1024 ** 2

/** A node that reads {@link HOLES} for a second. */
export const slowly = { backupRate: HOLES }

/** Makes a backup last for a while: holes are read as zeros. */
export const slow = (folder: string, bytes = HOLES) => {
  put(folder, "holes.bin", "")
  truncateSync(join(folder, "holes.bin"), bytes)
}

/** A running server, its console, and its state on the node. */
export const runningQuiet = Effect.fnUntraced(function* (
  place: ScenePlace,
  definition: Partial<ServerDefinition> = {},
  given?: Harness
) {
  const scene = yield* filesOf(place, { process: quietProcess, ...definition }, given)
  const { id, node } = scene
  yield* node.daemon.power(id, "start", 30)
  yield* until("the server runs", () => node.lastStatus(id) === "running")
  return { ...scene, ...watched(join(node.dataDir, "servers", id)) }
})
