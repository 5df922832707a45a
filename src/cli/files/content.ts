/** `muster files cat` and `muster files edit`. */

import { createHash } from "node:crypto"
import { createReadStream } from "node:fs"
import { mkdtemp, open, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeSink from "@effect/platform-node/NodeSink"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Console, Effect, Result, Stream } from "effect"
import { nameOf } from "../../contract/domain/Files.ts"
import { io } from "../../daemon/disk/fsio.ts"
import { command, switchFlag } from "../shared/command.ts"
import { CommandError, whyNoFile, wrongUsage } from "../shared/failures.ts"
import { ask, askStream } from "../shared/musterClient.ts"
import { isInteractive, isTerminal, note, runProgram, shown } from "../shared/terminal.ts"
import { localName } from "./localNames.ts"
import { noteManaged } from "./managed.ts"
import { type Place, placeOf, placesOf, remoteArgument, remoteArguments } from "./remotePath.ts"
import { cannotRead } from "./sendFile.ts"

/** Writes bytes to standard output as fast as its reader takes them. */
export const toStandardOutput = NodeSink.fromWritable({
  evaluate: () => process.stdout,
  endOnDone: false,
  onError: (cause) => CommandError.failed(`cannot write to standard output: ${whyNoFile(cause)}`)
})

const isBinary = (bytes: Uint8Array): boolean => bytes.subarray(0, 8000).includes(0)

/** Returns the text of a file without control of the terminal. @error CommandError it is no text (failed) */
const forTerminal = <E, R>(path: string, bytes: Stream.Stream<Uint8Array, E, R>) => {
  let isFirst = true
  return bytes.pipe(
    Stream.tap((chunk): Effect.Effect<void, CommandError> => {
      const isRefused = isFirst && isBinary(chunk)
      isFirst = false
      return isRefused ? Effect.fail(binary(path)) : Effect.void
    }),
    Stream.decodeText,
    Stream.map(shown)
  )
}

const binary = (path: string) =>
  CommandError.failed(
    `${path} is no text: add --force to print it on the terminal, or redirect the output to a file.`
  )

export const cat = command("cat", {
  description:
    "Print files to standard output. On a terminal, a file that is no text is refused, and control characters of a text are left out.",
  short: "Print files",
  examples: {
    "muster files cat lobby:server.properties": "A file",
    "muster files cat lobby:/logs/latest.log | grep WARN": "Into another program"
  },
  input: {
    path: remoteArguments,
    force: switchFlag("force", "Print files as they are to a terminal, too")
  },
  *run({ force, path }) {
    for (const place of yield* placesOf(path)) {
      const bytes = askStream((muster) => muster.download(place.id, place.path))
      const printed = isTerminal() && !force ? forTerminal(place.path, bytes) : bytes
      yield* Stream.run(printed, toStandardOutput)
    }
  }
})

const DEFAULT_EDITOR = "vi"

/** Runs the editor of the user on a file. The variable may have options, as in `code --wait`. */
const runEditor = (editor: string, file: string) =>
  runProgram(editor, "/bin/sh", ["-c", `${editor} "$1"`, "sh", file])

const digestOf = (file: string) =>
  readLocal(file).pipe(
    Stream.runFold(
      () => createHash("sha256"),
      (hash, chunk) => hash.update(chunk)
    ),
    Effect.map((hash) => hash.digest("hex"))
  )

/** Makes a file of this user only. It is removed with its folder, unless an edited copy stays. */
const editedFile = (name: string, stays: () => boolean) =>
  Effect.acquireRelease(
    io("make a folder for the edited file", () => mkdtemp(join(tmpdir(), "muster-edit-"))),
    (folder) => (stays() ? Effect.void : Effect.promise(() => rm(folder, { recursive: true, force: true })))
  ).pipe(Effect.map((folder) => join(folder, name)))

/** Reads a file into `file`; returns its tag, unless it does not exist. */
const fetchInto = Effect.fnUntraced(function* ({ id, path }: Place, file: string) {
  let etag: string | undefined
  const onStart = (started: { readonly etag: string }) => {
    etag = started.etag
  }
  const handle = yield* Effect.acquireRelease(
    io(`create ${file}`, () => open(file, "wx", 0o600)),
    (handle) => Effect.promise(() => handle.close())
  )
  yield* Stream.runForEach(
    askStream((muster) => muster.download(id, path, { onStart })),
    (chunk) => io(`write ${file}`, () => handle.appendFile(chunk))
  ).pipe(
    Effect.catchIf(
      (error) => error._tag === "CommandError" && error.status === "notFound",
      () => note(`${path} does not exist yet: it is made once the editor has saved something.`)
    )
  )
  return etag
}, Effect.scoped)

const readLocal = (file: string) =>
  NodeStream.fromReadable<Uint8Array, CommandError>({
    evaluate: () => createReadStream(file),
    onError: cannotRead(file)
  })

/** Writes the edited copy unless the file has changed since it was read. */
const storeEdited = ({ id, path }: Place, file: string, etag: string | undefined) =>
  ask((muster) =>
    muster
      .upload(id, path, readLocal(file), etag === undefined ? { ifNoneMatch: "*" } : { ifMatch: etag })
      .pipe(
        Effect.catchTag("PreconditionFailed", () =>
          Effect.fail(CommandError.refused(`${path} was changed meanwhile, and is not overwritten.`))
        )
      )
  )

const editPlace = Effect.fnUntraced(function* (place: Place, editor: string) {
  const name = nameOf(place.path)
  const local = localName(name)
  let isKept = false
  const file = yield* editedFile(Result.isSuccess(local) ? local.success.toString() : "file", () => isKept)
  const etag = yield* fetchInto(place, file)
  const before = yield* digestOf(file)
  const ended = yield* runEditor(editor, file)
  const isSame = (yield* digestOf(file)) === before
  if (ended === "" && isSame) return yield* note(`${place.path} is unchanged.`)
  isKept = !isSame
  const copy = isSame ? "" : ` The edited copy is ${file}.`
  if (ended !== "") {
    return yield* CommandError.failed(`the editor ended with ${ended}: ${place.path} is unchanged.${copy}`)
  }
  const stored = yield* Effect.mapError(
    storeEdited(place, file, etag),
    ({ message, status }) => new CommandError({ status, message: `${message}${copy}` })
  )
  isKept = false
  yield* Console.log(`${place.path} is ${stored.created ? "made" : "changed"}`)
  yield* noteManaged(place.id, [place.path])
}, Effect.scoped)

export const edit = command("edit", {
  description:
    "Open a file in the editor of $VISUAL or $EDITOR (vi), and write it back. A file that changed meanwhile is not overwritten: the command ends with 2 and says where the edited copy is. A file that does not exist is made.",
  short: "Open a file in an editor",
  examples: {
    "muster files edit lobby:server.properties": "With the editor of $EDITOR",
    "EDITOR='code --wait' muster files edit k7f:/plugins/Chat/config.yml": "With another one"
  },
  input: { path: remoteArgument },
  *run({ path }) {
    const { EDITOR = "", VISUAL = "" } = process.env
    const editor = VISUAL || EDITOR
    if (editor === "" && !isInteractive())
      return yield* wrongUsage(
        "There is no terminal for vi: set EDITOR, or use `muster files get` and `put`."
      )
    const place = yield* placeOf(path)
    if (place.isFolder) return yield* wrongUsage(`${place.path} is a folder: name a file.`)
    yield* editPlace(place, editor || DEFAULT_EDITOR)
  }
})
