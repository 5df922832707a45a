import { effect } from "@preact/signals"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { legible, WRITTEN_AGAIN } from "../../../contract/domain/fileTexts.ts"
import { type Failure, type Reply, whileVisible } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { FileEntry } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { bytes } from "../../dom/format.ts"
import { closeDialog, confirm, Dialog, openDialog } from "../../parts/Dialog.tsx"
import { action, empty, waiting } from "../../parts/parts.tsx"
import { done, failed } from "../../state/notices.ts"
import { addressOf, follow, guardPage } from "../../state/router.ts"
import { theme } from "../../state/theme.ts"
import { useLate } from "../../state/useLate.ts"
import type { TextEditor } from "./editor.ts"
import { marks } from "./FileList.tsx"
import { downloadFile, entryOf, fileName, LARGEST, readContent, readTag, writeText } from "./fileApi.ts"

/** A text with the tag that a write of it names. */
interface Content {
  readonly text: string
  readonly tag: string
}

/** Why a file has no editor, or its text. */
type Reading = Failure | { readonly ok: true; readonly entry?: FileEntry; readonly content: Content | string }

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const textOf = (content: ArrayBuffer): string | undefined => {
  try {
    const text = decoder.decode(content)
    return text.includes("\0") ? undefined : text
  } catch {
    return undefined
  }
}

const contentOf = ({ body, headers }: Extract<Reply<ArrayBuffer>, { ok: true }>): Content | string => {
  if (body.byteLength > LARGEST) return `The file has ${bytes(body.byteLength)}.`
  const text = textOf(body)
  return text === undefined ? "The file is no text in UTF-8." : { text, tag: headers.get("etag") ?? "" }
}

const read = async (id: string, path: string, signal: AbortSignal): Promise<Reading> => {
  const found = await entryOf(id, path)
  if (!found.ok) return found
  const entry = found.body
  const known = entry === undefined ? {} : { entry }
  if (entry?.type === "file" && entry.size > LARGEST)
    return { ok: true, ...known, content: `The file has ${bytes(entry.size)}.` }
  const reply = await readContent(id, path, signal)
  return reply.ok ? { ok: true, ...known, content: contentOf(reply) } : reply
}

/** Milliseconds between two looks at the tag of an open file. */
const EVERY = 15_000

/** Lines of each text that a conflict shows. */
const MOST = 400

/** Returns the lines in which two texts differ, from the first to the last one of each. */
const middles = (mine: string, theirs: string) => {
  const [one, other] = [mine.split("\n"), theirs.split("\n")]
  let start = 0
  while (start < Math.min(one.length, other.length) && one[start] === other[start]) start++
  let end = 0
  const rest = Math.min(one.length, other.length) - start
  while (end < rest && one.at(-1 - end) === other.at(-1 - end)) end++
  const cut = (lines: ReadonlyArray<string>) =>
    lines
      .slice(start, lines.length - end)
      .slice(0, MOST)
      .join("\n")
  return { first: start + 1, mine: cut(one), theirs: cut(other) }
}

const version = (title: string, text: string): View => (
  <div>
    <h3>{title}</h3>
    <pre class="version" tabIndex={0} role="region" aria-label={title}>
      {text === "" ? <span class="muted">no line</span> : text}
    </pre>
  </div>
)

/** Shows both texts of a file that another caller has changed or deleted. */
const askConflict = (props: {
  readonly name: string
  readonly mine: string
  /** Unset if the file was deleted. */
  readonly theirs: string | undefined
  readonly onOverwrite: () => void
  readonly onTake: () => void
}): void => {
  const { mine, name, theirs } = props
  const { first, ...shown } = middles(mine, theirs ?? "")
  const choose = (text: string, kind: string, act: () => void) =>
    action({
      text,
      class: kind,
      onClick: () => {
        closeDialog()
        act()
      }
    })
  openDialog(
    <Dialog title={`${name} has changed meanwhile`} class="is-wide">
      <p>
        {theirs === undefined
          ? "Another caller has deleted the file."
          : `Another caller has changed the file. The texts differ from line ${first} on.`}
      </p>
      {theirs !== undefined && (
        <div class="versions">
          {version("Your text", shown.mine)}
          {version("Text on the server", shown.theirs)}
        </div>
      )}
      <div class="dialog-actions">
        {action({ text: "Continue to edit", onClick: closeDialog })}
        {theirs !== undefined && choose("Take theirs", "", props.onTake)}
        {choose("Overwrite with yours", "danger", props.onOverwrite)}
      </div>
    </Dialog>
  )
}

const ManagedNote = (props: { readonly id: string; readonly keys: ReadonlyArray<string> }): View => (
  <p class="note">
    {WRITTEN_AGAIN}
    {props.keys.flatMap((key, index) => [index > 0 && ", ", <code key={key}>{key}</code>])}
    {". To change one for good, use the config patches of the tab "}
    <a href={addressOf.server(props.id, "changes")} onClick={follow}>
      Changes
    </a>
    .
  </p>
)

const downloadButton = (id: string, path: string): View =>
  action({ text: "Download", icon: "download", onClick: () => void downloadFile(id, path) })

interface TextProps {
  readonly id: string
  readonly path: string
  readonly line: number | undefined
  readonly content: Content
  readonly whyReadOnly: string | undefined
}

/** The editor of a text. */
const TextFile = ({ content, id, line, path, whyReadOnly }: TextProps): View => {
  const element = useRef<HTMLDivElement>(null)
  const editor = useRef<TextEditor>(undefined)
  const tag = useRef<string | undefined>(content.tag)
  const code = useLate(() => import("./editor.ts"))
  const [isChanged, setChanged] = useState(false)
  const [isBusy, setBusy] = useState(false)
  /** Whether the file is another one on the server. */
  const [isOld, setOld] = useState(false)
  const name = legible(fileName(path))

  const take = ({ tag: theirs, text }: Content) => {
    tag.current = theirs
    setOld(false)
    editor.current?.replace(text)
  }
  const resolve = async (mine: string) => {
    const now = await readContent(id, path, AbortSignal.timeout(40_000))
    if (!now.ok && now.code !== 404) return failed(`Not saved: ${name}`, now)
    const theirs = now.ok ? contentOf(now) : undefined
    askConflict({
      name,
      mine,
      theirs: typeof theirs === "object" ? theirs.text : theirs,
      onOverwrite: () => {
        tag.current = now.ok ? (now.headers.get("etag") ?? "") : undefined
        void write()
      },
      onTake: () => {
        if (typeof theirs === "object") take(theirs)
      }
    })
  }
  /** Shows the text that is on the server now; the own changes are compared with it before. */
  const readAgain = async () => {
    const mine = editor.current?.text()
    if (mine === undefined) return
    if (isChanged) return resolve(mine)
    const now = await readContent(id, path, AbortSignal.timeout(40_000))
    const theirs = now.ok ? contentOf(now) : undefined
    return typeof theirs === "object" ? take(theirs) : resolve(mine)
  }
  const write = async () => {
    const text = editor.current?.text()
    if (text === undefined || whyReadOnly !== undefined || isBusy) return
    setBusy(true)
    const reply = await writeText(id, path, text, tag.current)
    setBusy(false)
    if (!reply.ok) return reply.code === 412 ? resolve(text) : failed(`Not saved: ${name}`, reply)
    tag.current = reply.headers.get("etag") ?? ""
    setOld(false)
    editor.current?.saved(text)
    done(`Saved: ${name}`)
  }
  const save = useRef(write)
  save.current = write

  useEffect(() => {
    if (element.current === null || code === undefined || code === "failed") return
    const opened = code.openEditor(element.current, {
      name,
      text: content.text,
      isReadOnly: whyReadOnly !== undefined,
      line,
      onChange: setChanged,
      onSave: () => void save.current()
    })
    editor.current = opened
    const themed = effect(() => opened.setDark(theme.value === "dark"))
    return () => {
      themed()
      editor.current = undefined
      opened.close()
    }
  }, [code, content, line, whyReadOnly])
  useEffect(
    () =>
      whileVisible(EVERY, async () => {
        const before = tag.current
        const now = await readTag(id, path)
        // What is saved meanwhile has another tag.
        if (now !== undefined && tag.current === before) setOld(now.tag !== before)
      }),
    [id, path]
  )
  useLayoutEffect(() => {
    if (!isChanged) return
    return guardPage((leave) =>
      confirm(`Discard the changes of ${name}?`, "They are not saved.", "Discard the changes", leave)
    )
  }, [isChanged, name])

  if (code === "failed")
    return <p class="problem" role="alert">{`The editor could not be loaded. Load the page again.`}</p>
  return (
    <div class="stack">
      {isOld && (
        <p class="note" role="status">
          {"The file has changed on the server. "}
          {action({ text: isChanged ? "Compare…" : "Show the new text", onClick: () => void readAgain() })}
        </p>
      )}
      <div class="across file-tools">
        <span class="muted" role="status">
          {whyReadOnly ?? (isChanged ? "Changed, not saved" : "")}
        </span>
        <span class="grow" />
        {downloadButton(id, path)}
        {whyReadOnly === undefined &&
          action({
            text: "Save",
            class: "primary",
            isBusy,
            whyNot: isChanged ? undefined : "Change the text first.",
            onClick: () => void write()
          })}
      </div>
      {/* Keys in the editor are no shortcuts of the page. */}
      <div
        class="card editor"
        ref={element}
        onKeyDown={(event: KeyboardEvent) => event.stopPropagation()}
        aria-busy={code === undefined}
      />
    </div>
  )
}

const whyNoWrite = (entry: FileEntry | undefined): string | undefined => {
  const lacks = whyNot("files")
  if (lacks !== undefined) return `${lacks} The file can be read only.`
  return entry?.writable === false
    ? "The file is read only: its blueprint or its place allows no change."
    : undefined
}

/** A file in the editor, or as a download if it is no text or too large. */
export const FileEditor = (props: {
  readonly id: string
  readonly path: string
  readonly line: number | undefined
}): View => {
  const { id, line, path } = props
  const [reading, setReading] = useState<Reading>()
  useEffect(() => {
    const stop = new AbortController()
    void read(id, path, stop.signal).then((came) => stop.signal.aborted || setReading(came))
    return () => stop.abort()
  }, [id, path])
  if (reading === undefined) return waiting("Reading the file")
  if (!reading.ok)
    return (
      <p class="problem" role="alert">
        {`${reading.detail} ${reading.hint}`}
      </p>
    )
  const { content, entry } = reading
  return (
    <section class="stack" aria-label={`File ${legible(path)}`}>
      {entry !== undefined && marks({ ...entry, managed: [] })}
      {entry?.managed !== undefined && entry.managed.length > 0 && (
        <ManagedNote id={id} keys={entry.managed} />
      )}
      {typeof content === "string" ? (
        empty(
          "file",
          "This file has no editor",
          `${content} The editor opens texts of up to ${bytes(LARGEST)}.`,
          downloadButton(id, path)
        )
      ) : (
        <TextFile id={id} path={path} line={line} content={content} whyReadOnly={whyNoWrite(entry)} />
      )}
    </section>
  )
}
