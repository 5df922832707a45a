/** `muster files unpack`, and the archives of `muster files put --unpack`. */
import { Effect, Option, type Stream } from "effect"
import { Argument } from "effect/cli"
import { parentOf } from "../../contract/domain/Files.ts"
import { Overwrite } from "../../contract/domain/FileTask.ts"
import { choiceFlag, command, textArgument } from "../shared/command.ts"
import { type CommandError, wrongUsage } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { waitedFor } from "../shared/operations.ts"
import { withProgress } from "./progress.ts"
import { type Place, placeOf, readPath } from "./remotePath.ts"

export const overwriteFlag = choiceFlag(
  "overwrite",
  Overwrite.literals,
  "What happens to a file that exists: fail (the default) refuses the archive, skip leaves the file, replace replaces it"
)

/** Sends an archive that is unpacked into a folder, and waits until its entries are in place. */
export const sendArchive = Effect.fnUntraced(function* (
  { id, path }: Place,
  { bytes, size }: { readonly bytes: Stream.Stream<Uint8Array, CommandError>; readonly size?: number },
  overwrite: Option.Option<Overwrite>
) {
  const begun = yield* withProgress((progress) => {
    let before = 0
    progress.begin(path, size)
    return ask((muster) =>
      muster.unpack(id, path, bytes, {
        overwrite: Option.getOrElse(overwrite, () => "fail" as const),
        ...(size === undefined ? {} : { size }),
        onProgress: ({ done }) => {
          progress.moved(done - before)
          before = done
        }
      })
    )
  })
  yield* waitedFor(begun)
})

export const unpack = command("unpack", {
  description:
    "Unpack an archive that lies on a server: zip, tar, tar.gz or tar.zst. All entries are moved into place at the end; an archive that is refused leaves nothing. `muster files put --unpack` sends a local archive.",
  short: "Unpack an archive of a server",
  examples: {
    "muster files unpack lobby:/world.zip": "Into the folder of the archive",
    "muster files unpack lobby:/backups/world.tar.zst /world --overwrite replace": "Into another one"
  },
  input: {
    archive: textArgument("archive", "SERVER:PATH of the archive"),
    to: textArgument("folder", "The folder: PATH or SERVER:PATH; default: the one of the archive").pipe(
      Argument.optional
    ),
    overwrite: overwriteFlag
  },
  *run({ archive, overwrite, to }) {
    const { id, isFolder, path } = yield* placeOf(archive)
    if (isFolder) return yield* wrongUsage(`${path} is a folder: name an archive.`)
    const given = Option.getOrElse(to, () => parentOf(path))
    const target = given.startsWith("/") ? { id, ...(yield* readPath(given)) } : yield* placeOf(given)
    if (target.id !== id) return yield* wrongUsage("The archive and the folder are of one server.")
    const begun = yield* ask((muster) =>
      muster.files.unpack({
        params: { server: id },
        payload: { path, to: target.path, overwrite: Option.getOrElse(overwrite, () => "fail" as const) },
        headers: {}
      })
    )
    yield* waitedFor(begun)
  }
})
