/** The folders of a backup (spec 12.9): to look into them, and to choose what is restored. */
import { useState } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import { get, segment } from "../../api/http.ts"
import type { Backup, BackupEntry } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { bytes, dateTime } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { Dialog, openDialog } from "../../parts/Dialog.tsx"
import { action, listing, waiting } from "../../parts/parts.tsx"
import { fileIcons } from "../files/FileList.tsx"
import { pathIn, type Query, queryText, storeAddress, useFolder } from "../files/fileApi.ts"

export const pathOf = ({ id }: Backup): string => `/api/backups/${segment(id)}`

const filesRoute = (backup: Backup, below: string, query: Query): string =>
  `${pathOf(backup)}/files${below}?${queryText(query)}`

const downloadFile = (backup: Backup, path: string): Promise<void> =>
  storeAddress((ticket) => filesRoute(backup, "/content", { path, ticket }))

/** Paths that are chosen; a folder has all below it. */
export interface Chosen {
  readonly paths: ReadonlyArray<string>
  readonly choose: (paths: ReadonlyArray<string>) => void
}

const isBelow = (path: string, folder: string): boolean => path.startsWith(`${folder}/`)

const Check = ({ choose, path, paths }: Chosen & { readonly path: string }): View => {
  const isIncluded = paths.some((one) => isBelow(path, one))
  const isChosen = paths.includes(path)
  const others = paths.filter((one) => one !== path && !isBelow(one, path))
  return (
    <label class="file-box">
      <input
        type="checkbox"
        aria-label={`Choose ${legible(path)}`}
        checked={isChosen || isIncluded}
        disabled={isIncluded}
        onChange={() => choose(isChosen ? others : [...others, path])}
      />
    </label>
  )
}

/** The folders on the way to a path, as buttons. */
const Crumbs = (props: { readonly path: string; readonly open: (path: string) => void }): View => {
  const names = props.path.split("/").filter(Boolean)
  return (
    <nav class="across" aria-label="Folders of the backup">
      {["/", ...names].map((name, index) =>
        action({
          text: legible(name),
          class: "link",
          onClick: () => props.open(`/${names.slice(0, index).join("/")}`)
        })
      )}
    </nav>
  )
}

interface Shown {
  readonly backup: Backup
  /** Absent if nothing is chosen, and files can be downloaded. */
  readonly chosen?: Chosen
}

const Folder = (props: Shown & { readonly path: string; readonly open: (path: string) => void }): View => {
  const { backup, chosen, open, path } = props
  const { entries, failure, hasMore, more } = useFolder((after) =>
    get<ReadonlyArray<BackupEntry>>(filesRoute(backup, "", { path, after }))
  )
  const row = ({ modified_at, name, size, target, type }: BackupEntry) => {
    const child = pathIn(path, name)
    return (
      <tr key={name}>
        <th scope="row">
          <span class="across">
            {chosen !== undefined && <Check {...chosen} path={child} />}
            {icon(fileIcons[type])}
            {type === "folder" ? (
              action({ text: legible(name), class: "link", onClick: () => open(child) })
            ) : (
              <bdi>{legible(name)}</bdi>
            )}
            {target !== undefined && <span class="muted">{`→ ${legible(target)}`}</span>}
          </span>
        </th>
        <td>{type === "file" ? bytes(size) : "–"}</td>
        <td>
          <time dateTime={modified_at}>{dateTime(modified_at)}</time>
        </td>
        <td class="cell-actions">
          {type === "file" &&
            chosen === undefined &&
            action({
              text: "Download",
              icon: "download",
              class: "ghost",
              onClick: () => void downloadFile(backup, child)
            })}
        </td>
      </tr>
    )
  }
  if (failure !== undefined) return <p class="problem">{failure.detail}</p>
  if (entries?.length === 0) return <p class="muted">This folder is empty.</p>
  return (
    <>
      {entries === undefined
        ? waiting("Reading the folder")
        : listing(["Name", "Size", "Changed", ""], entries.map(row), "backup-files")}
      {hasMore && action({ text: "Show further entries", class: "wide", onClick: more })}
    </>
  )
}

export const BackupFolders = (props: Shown): View => {
  const [path, open] = useState("/")
  const { chosen } = props
  return (
    <div class="stack">
      <Crumbs path={path} open={open} />
      <Folder key={path} {...props} path={path} open={open} />
      {chosen !== undefined && chosen.paths.length > 0 && (
        <div class="across chosen" role="group" aria-label="Chosen files and folders">
          {chosen.paths.map((one) =>
            action(
              {
                text: legible(one),
                onClick: () => chosen.choose(chosen.paths.filter((other) => other !== one))
              },
              icon("close")
            )
          )}
        </div>
      )}
    </div>
  )
}

export const browse = (backup: Backup, title: string): void =>
  openDialog(
    <Dialog title={`Files of ${title}`} class="is-wide">
      <BackupFolders backup={backup} />
    </Dialog>
  )
