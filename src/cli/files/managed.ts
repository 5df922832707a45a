/** Keys that the next start writes again, in files that a command has written (spec 10.2). */
import { Effect, Stream } from "effect"
import { childPath, type FileEntry, parentOf } from "../../contract/domain/Files.ts"
import { legible, WRITTEN_AGAIN } from "../../contract/domain/fileTexts.ts"
import { note } from "../shared/terminal.ts"
import { entriesOf, entryAt, type Place } from "./remotePath.ts"

/** Folders of one upload that are looked at: most have no configuration. */
const MOST_FOLDERS = 50
/** Entries of a folder that are looked at. */
const MOST_ENTRIES = 10_000

const stepOf = (key: string): string => (key.includes(".") ? `[${key}]` : `.${key}`)

/** Whether `--set` takes a name in the quotes of a shell: others, such as `property[@name='x']`, need a blueprint. */
const isSettable = (name: string): boolean => legible(name) === name && !/[[\]'=]/.test(name)

const say = (server: Place["id"], path: string, { managed = [] }: FileEntry) => {
  if (managed.length === 0) return Effect.void
  const key = isSettable(path) ? managed.find(isSettable) : undefined
  const how =
    key === undefined
      ? "change `configs` of its blueprint"
      : `\`muster servers patch ${server} --set 'configs[${path.slice(1)}].find${stepOf(key)}=VALUE'\``
  return note(
    `${legible(path)}: ${WRITTEN_AGAIN}${managed.map(legible).join(", ")}. To change one for good: ${how}.`
  )
}

/** Says which keys of written files the next start writes again, and how to change one for good. */
export const noteManaged = Effect.fnUntraced(function* (id: Place["id"], paths: Iterable<string>) {
  const folders = [...Map.groupBy(paths, parentOf)].slice(0, MOST_FOLDERS)
  for (const [folder, its] of folders) {
    const [only = "", ...others] = its
    const wanted = new Set(its)
    const read =
      others.length === 0
        ? Effect.map(entryAt({ id, path: only, isFolder: false }), (entry) => (entry ? [entry] : []))
        : Stream.runCollect(Stream.take(entriesOf({ id, path: folder, isFolder: true }), MOST_ENTRIES))
    // The files are written, whatever comes of this.
    const found = yield* Effect.orElseSucceed(read, (): ReadonlyArray<FileEntry> => [])
    for (const entry of found) {
      const path = childPath(folder, entry.name)
      if (wanted.has(path)) yield* say(id, path, entry)
    }
  }
})
