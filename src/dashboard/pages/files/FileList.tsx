import { useEffect, useRef } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import type { FileEntry } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { bytes, dateTime } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { addressOf, follow } from "../../state/router.ts"
import { pathIn } from "./fileApi.ts"

const typeNames = { file: "File", folder: "Folder", link: "Link", other: "Other" } as const
export const fileIcons = { file: "file", folder: "folder", link: "link", other: "gear" } as const

const layers = {
  server: "",
  base: "The server has not changed this file of its software.",
  volume: "The file is in a volume.",
  mount: "The file is in a folder of the host."
} as const

const tag = (text: string, title: string): View => (
  <span key={text} class="tag" title={title}>
    {text}
  </span>
)

/** The marks of a file, if any: where it is, whether it is read only, and the keys that the next start writes. */
export const marks = ({ layer, managed = [], writable }: FileEntry): View | null => {
  const shown = [
    ...(layer === "server" ? [] : [tag(layer, layers[layer])]),
    ...(writable ? [] : [tag("read only", "The blueprint or the place of the file allows no change.")]),
    ...(managed.length === 0
      ? []
      : [tag(`managed: ${managed.join(", ")}`, "The next start writes these keys.")])
  ]
  return shown.length === 0 ? null : <span class="file-marks">{shown}</span>
}

const isLinked = ({ type }: FileEntry): boolean => type === "file" || type === "folder"

/** Selected names, and the position of the keyboard. */
export interface Selection {
  readonly names: ReadonlySet<string>
  readonly active: number
  readonly select: (names: ReadonlySet<string>) => void
  readonly activate: (index: number) => void
}

interface ListProps {
  readonly id: string
  /** The path of the folder, with a slash at its end. */
  readonly path: string
  readonly entries: ReadonlyArray<FileEntry>
  readonly selection: Selection
  /** Whether the list takes the focus. */
  readonly takesFocus: boolean
  readonly onRename: (entry: FileEntry) => void
  readonly onDelete: (entry: FileEntry) => void
  readonly onUp: () => void
}

const toggled = (names: ReadonlySet<string>, name: string): ReadonlySet<string> => {
  const next = new Set(names)
  if (!next.delete(name)) next.add(name)
  return next
}

const useKeys = (props: ListProps, focus: (index: number) => void) => {
  const { entries, onDelete, onRename, onUp, selection } = props
  const { active, names, select } = selection
  return (event: KeyboardEvent) => {
    const last = entries.length - 1
    const entry = entries[active]
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: Math.min(last, active + 1),
      ArrowUp: Math.max(0, active - 1),
      Home: 0,
      End: last
    }
    const to = moves[event.key]
    const isModified = event.ctrlKey || event.metaKey
    if (to !== undefined) {
      focus(to)
      const reached = entries[to]
      if (event.shiftKey && entry !== undefined && reached !== undefined)
        select(new Set([...names, entry.name, reached.name]))
    } else if (event.key === " " && entry !== undefined) select(toggled(names, entry.name))
    else if (event.key === "a" && isModified) select(new Set(entries.map(({ name }) => name)))
    else if (event.key === "F2" && entry !== undefined) onRename(entry)
    else if (event.key === "Delete" && entry !== undefined) onDelete(entry)
    else if (event.key === "Backspace") onUp()
    else if (event.key === "Escape" && names.size > 0) select(new Set())
    else return
    event.preventDefault()
    event.stopPropagation()
  }
}

/** The entries of a folder. One row is a stop of the tab key; arrows move to the others. */
export const FileList = (props: ListProps): View => {
  const { entries, id, path, selection } = props
  const { active, activate, names, select } = selection
  const body = useRef<HTMLTableSectionElement>(null)
  const focus = (index: number) => {
    activate(index)
    body.current?.rows[index]?.querySelector<HTMLElement>(".file-link")?.focus()
  }
  useEffect(() => {
    if (props.takesFocus) focus(active)
  }, [])
  const isAll = entries.length > 0 && entries.every(({ name }) => names.has(name))
  return (
    <table class="card listing files">
      <thead>
        <tr>
          <td class="file-check">
            <label class="file-box">
              <input
                type="checkbox"
                aria-label="Select all entries"
                checked={isAll}
                onChange={() => select(isAll ? new Set() : new Set(entries.map(({ name }) => name)))}
              />
            </label>
          </td>
          <th scope="col">Name</th>
          <th scope="col">Size</th>
          <th scope="col">Changed</th>
          <th scope="col">Type</th>
        </tr>
      </thead>
      <tbody ref={body} onKeyDown={useKeys(props, focus)}>
        {entries.map((entry, index) => {
          const { modified_at, name, size, target, type } = entry
          const shown = legible(name)
          const inner = [icon(fileIcons[type]), <bdi key="name">{shown}</bdi>]
          const common = { class: "file-link", tabIndex: index === active ? 0 : -1 }
          return (
            <tr
              key={name}
              class={classes(names.has(name) && "is-selected")}
              onFocusIn={() => index !== active && activate(index)}
            >
              <td class="file-check">
                <label class="file-box">
                  <input
                    type="checkbox"
                    tabIndex={index === active ? 0 : -1}
                    aria-label={`Select ${shown}`}
                    checked={names.has(name)}
                    onChange={() => select(toggled(names, name))}
                  />
                </label>
              </td>
              <th scope="row">
                <div class="file-name">
                  {isLinked(entry) ? (
                    <a
                      {...common}
                      href={addressOf.files(id, pathIn(path, type === "folder" ? `${name}/` : name))}
                      onClick={follow}
                    >
                      {inner}
                    </a>
                  ) : (
                    <span {...common}>{inner}</span>
                  )}
                  {target !== undefined && <span class="muted">{`→ ${legible(target)}`}</span>}
                  {marks(entry)}
                </div>
              </th>
              <td class="file-size">{type === "file" ? bytes(size) : "–"}</td>
              <td class="file-time">
                <time dateTime={modified_at}>{dateTime(modified_at)}</time>
              </td>
              <td class="file-type">{typeNames[type]}</td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}
