import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { FileChange } from "../../../src/contract/domain/Files.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { asRoot } from "../access/scene.ts"
import { daemonProcess, stateOf } from "../daemonChild.ts"
import { newId, until } from "../support.ts"

const FOLDERS = 20
const FILES = 20
const ALL = FOLDERS * (FILES + 1)
/** A tree of the base: an overlay does not rename it, so that a move copies it and removes the old place. */
const script = `mkdir tree && cd tree && for d in $(seq ${FOLDERS}); do mkdir $d && (cd $d && for f in $(seq ${FILES}); do echo $d/$f > $f; done); done`

const below = (folder: string): ReadonlyArray<string> =>
  existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: "utf8" }) : []

const isWhole = (folder: string) =>
  below(folder).length === ALL && readFileSync(join(folder, "7/9"), "utf8") === "7/9\n"

/** A server with a large tree, and a task whose daemon is killed at some moment. */
const killedAt = Effect.fnUntraced(function* (change: FileChange, moment: "copies" | "removes") {
  const dataDir = yield* temporaryFolder
  const id = newId()
  const first = yield* daemonProcess(dataDir)
  yield* first.ask(`create ${JSON.stringify({ id, install: { script } })}`)
  yield* until("the server is installed", () => stateOf(dataDir, id).status === "offline")
  const files = join(dataDir, "servers", id, "files")
  const operation = serverId(idBytes(16))
  const task = `${id} ${operation} ${JSON.stringify({ kind: "change", changes: [change] })}`
  const [tree, moved] = [join(files, "tree"), join(files, "moved")]
  yield* first.ask(`begin ${task}`)
  const folders = (name: string) =>
    existsSync(join(files, name)) ? readdirSync(join(files, name)).length : 0
  const aside = () => readdirSync(files).find((name) => name.startsWith(".muster-")) ?? "none"
  const isReached = () =>
    moment === "copies" ? folders(aside()) > 3 : existsSync(moved) && folders("tree") < FOLDERS
  while (!isReached()) yield* Effect.yieldNow
  yield* first.kill
  const second = yield* daemonProcess(dataDir)
  const record = join(dataDir, "servers", id, "tasks", `${operation}.json`)
  const state = () => JSON.parse(readFileSync(record, "utf8")).state
  const found = (folder: string) => (isWhole(folder) ? "whole" : existsSync(folder) ? "half" : "missing")
  return {
    resumed: Effect.andThen(
      second.ask(`begin ${task}`),
      until("the task has ended", () => state() !== "running")
    ),
    cancelled: second.ask(`cancel ${task}`),
    found: () => ({
      state: state(),
      tree: found(tree),
      moved: found(moved),
      remnants: below(files).filter((name) => name.includes(".muster-"))
    })
  }
})

const copy: FileChange = { kind: "copy", from: "/tree", path: "/moved" }
const move: FileChange = { kind: "move", from: "/tree", path: "/moved" }

describe.runIf(asRoot)("spec 11.4: a large copy or move whose daemon is killed", () => {
  for (const change of [copy, move]) {
    it.live(
      `a ${change.kind} that copies is finished, or undone if it is cancelled`,
      () =>
        Effect.gen(function* () {
          const finished = yield* killedAt(change, "copies")
          yield* finished.resumed
          assert.deepStrictEqual(finished.found(), {
            state: "done",
            tree: change === copy ? "whole" : "missing",
            moved: "whole",
            remnants: []
          })
          const undone = yield* killedAt(change, "copies")
          yield* undone.cancelled
          assert.deepStrictEqual(undone.found(), {
            state: "cancelled",
            tree: "whole",
            moved: "missing",
            remnants: []
          })
        }).pipe(Effect.scoped),
      120_000
    )
  }

  for (const [way, state] of [
    ["resumed", "done"],
    ["cancelled", "cancelled"]
  ] as const) {
    it.live(
      `a move that removes the old place is finished when it is ${way}`,
      () =>
        Effect.gen(function* () {
          const killed = yield* killedAt(move, "removes")
          yield* killed[way]
          assert.deepStrictEqual(killed.found(), { state, tree: "missing", moved: "whole", remnants: [] })
        }).pipe(Effect.scoped),
      120_000
    )
  }
})
