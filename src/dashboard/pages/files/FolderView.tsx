import { useSignalEffect } from "@preact/signals"
import { useEffect, useRef, useState } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import { whyNot } from "../../api/session.ts"
import type { FileEntry } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { count } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { Menu } from "../../parts/Menu.tsx"
import { action, empty, searchField, waiting } from "../../parts/parts.tsx"
import { failed } from "../../state/notices.ts"
import { addressOf, go } from "../../state/router.ts"
import { FileList, type Selection } from "./FileList.tsx"
import {
  downloadArchive,
  downloadFile,
  fileName,
  folderOf,
  folderPath,
  pathIn,
  readPage,
  useFolder
} from "./fileApi.ts"
import {
  askDelete,
  askMode,
  askNewFile,
  askNewFolder,
  askPack,
  askRename,
  askTarget,
  askUnpack,
  isArchive,
  type Place,
  showSftp
} from "./fileDialogs.tsx"
import { chosenFiles, enqueue, enqueueDropped, stored } from "./uploads.ts"

const entriesText = (number: number): string => (number === 1 ? "1 entry" : `${count(number)} entries`)

/** Folders first, each group by name. */
const sorted = (entries: ReadonlyArray<FileEntry>): ReadonlyArray<FileEntry> =>
  entries.toSorted((one, other) => Number(other.type === "folder") - Number(one.type === "folder"))

/** Calls `more` once, when the end of the list comes into view. */
const MoreButton = ({ more }: { readonly more: () => void }): View => {
  const ref = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const seen = new IntersectionObserver(([entry]) => entry?.isIntersecting === true && more())
    if (ref.current !== null) seen.observe(ref.current)
    return () => seen.disconnect()
  }, [])
  return <div ref={ref}>{action({ text: "Show further entries", class: "wide", onClick: more })}</div>
}

const SelectionBar = (props: {
  readonly place: Place
  readonly entries: ReadonlyArray<FileEntry>
  /** Whether these are all entries of the folder. */
  readonly isAll: boolean
  readonly canWrite: boolean
  readonly onClear: () => void
}): View => {
  const { canWrite, entries, place } = props
  const [first] = entries
  const locked = entries.find(({ writable }) => !writable)
  const why = locked === undefined ? undefined : `${legible(locked.name)} is read only.`
  const names = entries.map(({ name }) => name)
  const download = () => {
    // The address of a request has no room for many paths.
    const paths = props.isAll ? [folderPath(place.path)] : names.map((name) => pathIn(place.path, name))
    void (!props.isAll && entries.length === 1 && first?.type === "file"
      ? downloadFile(place.id, paths[0] ?? "")
      : downloadArchive(place.id, paths))
  }
  return (
    <div class="across bulk" role="toolbar" aria-label="Actions on the selected entries">
      <span class="bulk-count" role="status">{`${entries.length} selected`}</span>
      {action({ text: "Download", icon: "download", class: "ghost", onClick: download })}
      {canWrite && [
        <span class="bulk-line" aria-hidden="true" />,
        first !== undefined &&
          entries.length === 1 &&
          action({ text: "Rename…", class: "ghost", whyNot: why, onClick: () => askRename(place, first) }),
        first?.type === "file" &&
          entries.length === 1 &&
          isArchive(first.name) &&
          action({ text: "Unpack…", class: "ghost", onClick: () => askUnpack(place, first.name) }),
        action({
          text: "Move…",
          class: "ghost",
          whyNot: why,
          onClick: () => askTarget("move", place, names)
        }),
        action({ text: "Copy…", class: "ghost", onClick: () => askTarget("copy", place, names) }),
        action({ text: "Pack…", class: "ghost", onClick: () => askPack(place, names) }),
        action({
          text: "Permissions…",
          class: "ghost",
          whyNot: why,
          onClick: () => askMode(place, entries)
        }),
        action({
          text: "Delete…",
          icon: "trash",
          class: "ghost is-dangerous",
          whyNot: why,
          onClick: () => askDelete(place, entries)
        })
      ]}
      <button type="button" class="ghost square" aria-label="Clear the selection" onClick={props.onClear}>
        {icon("close")}
      </button>
    </div>
  )
}

const enqueued = (refused: string | undefined): void => {
  if (refused !== undefined) failed("Not uploaded", { detail: refused, hint: "" })
}

const UploadMenu = ({ id, path }: { readonly id: string; readonly path: string }): View => {
  const input = useRef<HTMLInputElement>(null)
  const ask = (isFolder: boolean) => {
    if (input.current === null) return
    input.current.webkitdirectory = isFolder
    input.current.click()
  }
  return (
    <>
      <input
        type="file"
        multiple
        hidden
        ref={input}
        onChange={({ currentTarget }) => {
          enqueued(enqueue(id, path, chosenFiles(currentTarget.files ?? [])))
          currentTarget.value = ""
        }}
      />
      <Menu
        label="Upload"
        class="primary"
        items={[
          { text: "Files…", onChoose: () => ask(false) },
          { text: "A folder…", onChoose: () => ask(true) }
        ]}
      >
        Upload
      </Menu>
    </>
  )
}

/** Takes files and folders that are dropped on an element. */
const useDrop = (id: string, path: string) => {
  const [isOver, setOver] = useState(false)
  return {
    isOver,
    handlers: {
      onDragOver: (event: DragEvent) => {
        if (event.dataTransfer?.types.includes("Files") !== true) return
        event.preventDefault()
        setOver(true)
      },
      onDragLeave: () => setOver(false),
      onDrop: (event: DragEvent) => {
        setOver(false)
        if (event.dataTransfer === null) return
        event.preventDefault()
        void enqueueDropped(id, path, event.dataTransfer).then(enqueued)
      }
    }
  }
}

/** A folder: its entries, and what can be done with them. */
export const FolderView = (props: {
  readonly id: string
  readonly path: string
  /** The folder or file that was shown before. */
  readonly from: string | undefined
  readonly onSearch: () => void
}): View => {
  const { id, path } = props
  const [from] = useState(props.from)
  const { entries, failure, hasMore, more, reload } = useFolder((after) => readPage(id, path, { after }))
  const [words, setWords] = useState("")
  const seen = useRef(stored.value)
  const [names, select] = useState<ReadonlySet<string>>(new Set())
  const [moved, activate] = useState<number>()
  const canWrite = whyNot("files") === undefined
  const place: Place = {
    id,
    path,
    onChanged: () => {
      select(new Set())
      reload()
    }
  }
  const wanted = words.trim().toLowerCase()
  const shown = sorted(entries ?? []).filter(({ name }) => name.toLowerCase().includes(wanted))
  const chosen = shown.filter(({ name }) => names.has(name))
  const left = shown.findIndex(({ name }) => from !== undefined && name === fileName(from))
  const isFocusLost = from !== undefined && (document.activeElement ?? document.body) === document.body
  const active = Math.min(moved ?? Math.max(0, left), Math.max(0, shown.length - 1))
  const selection: Selection = { names, select, active, activate }
  const canChange = (entry: FileEntry) => canWrite && entry.writable
  const drop = useDrop(id, path)
  useSignalEffect(() => {
    if (stored.value > seen.current) {
      seen.current = stored.value
      reload()
    }
  })
  return (
    <section
      class={classes("stack folder", drop.isOver && "is-over")}
      aria-label={`Folder ${legible(path)}`}
      {...(canWrite && drop.handlers)}
    >
      <div class="across file-tools">
        {searchField("Filter names", { value: words, onWords: setWords })}
        <span class="muted" role="status">
          {entries === undefined ? "" : `${entriesText(shown.length)}${hasMore ? ", more follow" : ""}`}
        </span>
        <span class="grow" />
        {action({ text: "Refresh", icon: "restart", class: "ghost", onClick: reload })}
        {action({ text: "Search…", icon: "search", class: "ghost", onClick: props.onSearch })}
        {action({ text: "SFTP…", class: "ghost", onClick: () => showSftp(id) })}
        {canWrite && [
          <Menu
            key="new"
            label="New"
            class=""
            items={[
              { text: "Folder…", onChoose: () => askNewFolder(place) },
              { text: "File…", onChoose: () => askNewFile(place) }
            ]}
          >
            New
          </Menu>,
          <UploadMenu key="upload" id={id} path={path} />
        ]}
      </div>
      {failure !== undefined && (
        <p class="problem" role="alert">
          {`${failure.detail} ${failure.hint}`}
        </p>
      )}
      {chosen.length > 0 && (
        <SelectionBar
          place={place}
          entries={chosen}
          isAll={chosen.length > 1 && chosen.length === entries?.length && !hasMore}
          canWrite={canWrite}
          onClear={() => select(new Set())}
        />
      )}
      {entries === undefined && failure === undefined && waiting("Reading the folder")}
      {entries !== undefined &&
        (shown.length === 0 ? (
          empty("folder", words === "" ? "This folder is empty" : "No name matches", "")
        ) : (
          <FileList
            id={id}
            path={path}
            entries={shown}
            selection={selection}
            takesFocus={isFocusLost}
            onRename={(entry) => canChange(entry) && askRename(place, entry)}
            onDelete={(entry) => {
              const doomed = chosen.length > 0 ? chosen : [entry]
              if (doomed.every(canChange)) askDelete(place, doomed)
            }}
            onUp={() => path !== "/" && go(addressOf.files(id, folderOf(path)))}
          />
        ))}
      {hasMore && <MoreButton key={entries?.length} more={more} />}
    </section>
  )
}
