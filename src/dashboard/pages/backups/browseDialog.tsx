/** The dialog that lists the files of a backup, and downloads one of them (spec 12.9). */
import { useState } from "preact/hooks"
import { segment, useGet } from "../../api/http.ts"
import type { Backup, BackupEntry } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { bytes, dateTime } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { Dialog, openDialog } from "../../parts/Dialog.tsx"
import { action, drawReply, listing } from "../../parts/parts.tsx"
import { storeAddress } from "../files/download.ts"

/** Entries that the dialog shows of a folder. */
const MOST = 1000

const filesRoute = ({ id }: Backup, below: string, query: Readonly<Record<string, string>>): string =>
  `/api/backups/${segment(id)}/files${below}?${new URLSearchParams(query)}`

const childOf = (folder: string, name: string): string => `${folder === "/" ? "" : folder}/${name}`

const download = (backup: Backup, path: string): Promise<void> =>
  storeAddress((ticket) =>
    filesRoute(backup, "/content", { path, ...(ticket === undefined ? {} : { ticket }) })
  )

const icons = { file: "file", folder: "folder", link: "link" } as const

/** The folders on the way to a path, as buttons. */
const Crumbs = (props: { readonly path: string; readonly open: (path: string) => void }): View => {
  const names = props.path.split("/").filter(Boolean)
  return (
    <nav class="across" aria-label="Folders of the backup">
      {["/", ...names].map((name, index) =>
        action({
          text: name,
          class: "ghost",
          onClick: () => props.open(`/${names.slice(0, index).join("/")}`)
        })
      )}
    </nav>
  )
}

const BrowseDialog = ({ backup, title }: { readonly backup: Backup; readonly title: string }): View => {
  const [path, open] = useState("/")
  const reply = useGet<ReadonlyArray<BackupEntry>>(filesRoute(backup, "", { path, limit: String(MOST) }))
  const row = (entry: BackupEntry) => {
    const { modified_at, name, size, target, type } = entry
    const child = childOf(path, name)
    return (
      <tr key={name}>
        <th scope="row">
          <span class="across">
            {icon(icons[type])}
            {type === "folder" ? (
              action({ text: name, class: "ghost", onClick: () => open(child) })
            ) : (
              <bdi>{name}</bdi>
            )}
            {target !== undefined && <span class="muted">{`→ ${target}`}</span>}
          </span>
        </th>
        <td>{type === "file" ? bytes(size) : "–"}</td>
        <td>
          <time dateTime={modified_at}>{dateTime(modified_at)}</time>
        </td>
        <td class="cell-actions">
          {type === "file" &&
            action({
              text: "Download",
              icon: "download",
              class: "ghost",
              onClick: () => void download(backup, child)
            })}
        </td>
      </tr>
    )
  }
  return (
    <Dialog title={`Files of ${title}`} class="is-wide">
      <div class="stack">
        <Crumbs path={path} open={open} />
        {drawReply(reply, "Reading the folder", (entries) =>
          entries.length === 0 ? (
            <p class="muted">This folder is empty.</p>
          ) : (
            listing(["Name", "Size", "Changed", ""], entries.map(row), "files of the backup")
          )
        )}
        {reply?.ok === true && reply.body.length === MOST && (
          <p class="note">{`The first ${MOST} entries. The command muster backups files lists all.`}</p>
        )}
      </div>
    </Dialog>
  )
}

export const browse = (backup: Backup, title: string): void =>
  openDialog(<BrowseDialog backup={backup} title={title} />)
