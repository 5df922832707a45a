import { useState } from "preact/hooks"
import type { Reply } from "../../api/http.ts"
import type { FileMatch } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { checkField, field, useForm } from "../../parts/form.tsx"
import { action, drawReply } from "../../parts/parts.tsx"
import { addressOf, follow } from "../../state/router.ts"
import { folderPath, searchFiles } from "./fileApi.ts"

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
      <bdi>{path}</bdi>
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
    <section class="stack card panel" aria-label={`Search in ${path}`}>
      <form class="stack" onSubmit={(event: Event) => void submit(event)}>
        {inputs(fields)}
        {checkField("Upper and lower case differ", isExact, () => set("case", isExact ? "" : "true"))}
        <div class="across">
          {action({
            text: `Search in ${path}`,
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
