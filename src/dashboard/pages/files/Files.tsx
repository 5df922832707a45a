import { useEffect, useRef, useState } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import type { Reply } from "../../api/http.ts"
import { caller } from "../../api/session.ts"
import type { FileMatch } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { checkField, field, useForm } from "../../parts/form.tsx"
import { action, drawReply } from "../../parts/parts.tsx"
import { addressOf, follow } from "../../state/router.ts"
import { FileEditor } from "./FileEditor.tsx"
import { FolderView } from "./FolderView.tsx"
import { fileName, folderPath, searchFiles } from "./fileApi.ts"
import { UploadList } from "./UploadList.tsx"

/** Matches that a search returns at most. */
const MOST = 500

const fields = [
  field("text", "name", "Name", "A part of the name, or a pattern such as *.yml."),
  field("text", "text", "Text", "In files, as written.")
]

/** Returns a pattern of names that contain a text, unless the text is a pattern. */
const patternOf = (text: string): string => (/[*?]/.test(text) ? text : `*${text}*`)

const matchRow = (id: string, { excerpt, line, path }: FileMatch): View => (
  <li key={`${path}:${line}`}>
    <a href={addressOf.files(id, path, line)} onClick={follow}>
      <bdi>{legible(path)}</bdi>
      {line !== undefined && `:${line}`}
    </a>
    {excerpt !== undefined && <code>{excerpt}</code>}
  </li>
)

/** Finds files below a folder by name and by text; a match opens the file at its line. */
export const FileSearch = (props: {
  readonly id: string
  readonly path: string
  readonly onClose: () => void
}): View => {
  const { id, path } = props
  const { inputs, set, texts } = useForm()
  const [reply, setReply] = useState<Reply<ReadonlyArray<FileMatch>>>()
  const [isBusy, setBusy] = useState(false)
  const { name = "", text = "" } = texts
  const isExact = texts.case === "true"
  const isEmpty = name === "" && text === ""
  const submit = async (event: Event) => {
    event.preventDefault()
    if (isBusy || isEmpty) return
    setBusy(true)
    setReply(
      await searchFiles(id, {
        path: folderPath(path),
        name: name === "" ? undefined : patternOf(name),
        text: text === "" ? undefined : text,
        case: isExact ? true : undefined,
        limit: MOST
      })
    )
    setBusy(false)
  }
  const isIncomplete = reply?.ok === true && reply.headers.get("x-muster-incomplete") === "true"
  return (
    <section class="stack card panel" aria-label={`Search in ${legible(path)}`}>
      <form class="stack" onSubmit={(event: Event) => void submit(event)}>
        {inputs(fields)}
        {checkField("Upper and lower case differ", isExact, () => set("case", isExact ? "" : "true"))}
        <div class="across">
          {action({
            text: `Search in ${legible(path)}`,
            icon: "search",
            class: "primary",
            isBusy,
            whyNot: isEmpty ? "Enter a name or a text." : undefined
          })}
          {action({ text: "Close the search", class: "ghost", onClick: props.onClose })}
        </div>
      </form>
      {(isBusy || reply !== undefined) && (
        <div role="status">
          {drawReply(
            isBusy ? undefined : reply,
            "Searching",
            (found) => (
              <p class="muted">
                {counted(found.length, "match").replace(/chs$/, "ches")}
                {isIncomplete &&
                  ". The search ended at a limit of time, files or bytes: search in a smaller folder."}
                {found.length === MOST && ". There may be more."}
              </p>
            ),
            true
          )}
        </div>
      )}
      {!isBusy && reply?.ok === true && (
        <ul class="matches">{reply.body.map((match) => matchRow(id, match))}</ul>
      )}
    </section>
  )
}

/** The folders that the key reaches, each with a slash at its end. */
const rootsOf = (): ReadonlyArray<string> =>
  (caller.value?.paths ?? ["/"]).map((path) => (path.endsWith("/") ? path : `${path}/`))

/** Links to the folders of a path, as far as the key reaches them. */
const Crumbs = ({ id, path }: { readonly id: string; readonly path: string }): View => {
  const roots = rootsOf()
  const ends = [...path].flatMap((character, index) => (character === "/" ? [index + 1] : []))
  const folders = ends.map((end) => path.slice(0, end))
  const others = roots.filter((root) => !path.startsWith(root))
  const link = (folder: string, text: string) => (
    <a key={folder} href={addressOf.files(id, folder)} onClick={follow}>
      <bdi>{legible(text)}</bdi>
    </a>
  )
  return (
    <nav class="crumbs" aria-label="Folder">
      {folders.map((folder) => {
        const text = folder === "/" ? "Files" : fileName(folder)
        const isReached = roots.some((root) => folder.startsWith(root))
        return [
          folder !== "/" && <span aria-hidden="true">/</span>,
          isReached && folder !== path ? link(folder, text) : <bdi key={folder}>{legible(text)}</bdi>
        ]
      })}
      {!path.endsWith("/") && [
        <span key="slash" aria-hidden="true">
          /
        </span>,
        <bdi key="file" aria-current="page">
          {legible(fileName(path))}
        </bdi>
      ]}
      {others.length > 0 && (
        <span class="crumbs-others">
          <span class="muted">Also: </span>
          {others.map((root) => link(root, root))}
        </span>
      )}
    </nav>
  )
}

/** The files of a server: a folder, or a file in the editor. */
export const Files = (props: {
  readonly id: string
  /** As in the address; empty: the first folder that the key reaches. */
  readonly path: string
  readonly line: number | undefined
}): View => {
  const { id } = props
  const path = props.path === "" ? (rootsOf()[0] ?? "/") : props.path
  const before = useRef<string>(undefined)
  const from = before.current
  useEffect(() => {
    before.current = path
  }, [path])
  const [searched, setSearched] = useState<string>()
  return (
    <div class="stack">
      <Crumbs id={id} path={path} />
      <UploadList id={id} />
      {searched !== undefined && (
        <div hidden={path !== searched}>
          <FileSearch key={searched} id={id} path={searched} onClose={() => setSearched(undefined)} />
        </div>
      )}
      {path.endsWith("/") ? (
        <FolderView key={path} id={id} path={path} from={from} onSearch={() => setSearched(path)} />
      ) : (
        <FileEditor key={`${path} ${props.line}`} id={id} path={path} line={props.line} />
      )}
    </div>
  )
}
