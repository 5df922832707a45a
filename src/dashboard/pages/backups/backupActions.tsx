/** What can be done with backups (spec 12.1), and the dialogs that ask for it. */
import { useState } from "preact/hooks"
import { get, post, type Reply, request, segment, useGet, useReply } from "../../api/http.ts"
import { isAdmin, whyNot } from "../../api/session.ts"
import type { Backup, BackupEntry, BackupTarget, Operation, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { bytes, dateTime } from "../../dom/format.ts"
import { icon } from "../../dom/icons.tsx"
import { Dialog, FormDialog, openDialog, removalItem } from "../../parts/Dialog.tsx"
import { bodyOf, checkField, type Field, field, useForm } from "../../parts/form.tsx"
import type { MenuItem } from "../../parts/Menu.tsx"
import { action, drawReply, listing } from "../../parts/parts.tsx"
import { failed, tell } from "../../state/notices.ts"
import { ended, tellOperation } from "../../state/operations.ts"
import { storeAddress } from "../files/fileApi.ts"

/** Entries that the dialog shows of a folder. */
const MOST = 1000

const filesRoute = ({ id }: Backup, below: string, query: Readonly<Record<string, string>>): string =>
  `/api/backups/${segment(id)}/files${below}?${new URLSearchParams(query)}`

const childOf = (folder: string, name: string): string => `${folder === "/" ? "" : folder}/${name}`

const downloadFile = (backup: Backup, path: string): Promise<void> =>
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
              onClick: () => void downloadFile(backup, child)
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

/** The name of a backup for people; one without a name has its time. */
export const titleOf = ({ created_at, name }: Backup): string => name ?? dateTime(created_at)

const pathOf = ({ id }: Backup): string => `/api/backups/${segment(id)}`

export const download = (backup: Backup): Promise<void> =>
  storeAddress((ticket) => `${pathOf(backup)}/archive${ticket === undefined ? "" : `?ticket=${ticket}`}`)

const verify = async (backup: Backup): Promise<void> => {
  const begun = await post<Operation>(`${pathOf(backup)}/verify`)
  if (!begun.ok) return failed(`Not checked: ${titleOf(backup)}`, begun)
  await tellOperation(begun.body, {
    begun: "The check has begun",
    fine: `Checked: ${titleOf(backup)}`,
    detail: "Every part is as it was stored.",
    refused: `The check has failed: ${titleOf(backup)}`
  })
}

/** Begins a drill; the row of the backup has its result. */
const drill = async (backup: Backup, onChanged: () => void): Promise<void> => {
  const begun = await post<Operation>(`${pathOf(backup)}/drill`, {})
  if (!begun.ok) return failed(`No drill: ${titleOf(backup)}`, begun)
  await tellOperation(begun.body, {
    begun: "The drill has begun",
    fine: `A server of the backup ran: ${titleOf(backup)}`,
    detail: "The server of the drill is deleted.",
    refused: `The drill has failed: ${titleOf(backup)}`
  })
  onChanged()
}

const pin = (backup: Backup, onChanged: () => void): void =>
  void tell(
    request("PATCH", pathOf(backup), { body: { pinned: !backup.pinned } }),
    `${backup.pinned ? "Unpinned" : "Pinned"}: ${titleOf(backup)}`,
    `${titleOf(backup)} was not ${backup.pinned ? "unpinned" : "pinned"}`
  ).then(onChanged)

const name = field("text", "name", "Name", "What the backup is for, such as before the event.")

const RenameDialog = (props: { readonly backup: Backup; readonly onChanged: () => void }): View => {
  const { backup, onChanged } = props
  const { inputs, texts } = useForm({ name: backup.name ?? "" })
  const text = (texts.name ?? "").trim()
  return (
    <FormDialog<Backup>
      title="Name of the backup"
      button="Save"
      onSubmit={() => request("PATCH", pathOf(backup), { body: { name: text === "" ? null : text } })}
      onDone={onChanged}
    >
      {inputs([name])}
    </FormDialog>
  )
}

const isFinished = ({ state }: Backup): boolean => state === "done" || state === "failed"

export const whyNoDownload = ({ state }: Backup): string | undefined =>
  state === "done" ? whyNot("backups") : `The backup is ${state}.`

/** The actions on a backup for which its row has no button. */
export const itemsOf = (backup: Backup, onChanged: () => void): ReadonlyArray<MenuItem> => {
  const lacks = whyNot("backups")
  const title = titleOf(backup)
  return [
    { text: "Browse…", whyNot: whyNoDownload(backup), onChoose: () => browse(backup, title) },
    {
      text: backup.pinned ? "Unpin" : "Pin",
      whyNot: lacks,
      onChoose: () => pin(backup, onChanged)
    },
    {
      text: "Rename…",
      whyNot: lacks,
      onChoose: () => openDialog(<RenameDialog backup={backup} onChanged={onChanged} />)
    },
    { text: "Check every part", whyNot: whyNoDownload(backup), onChoose: () => void verify(backup) },
    {
      text: "Drill: start a server of it",
      whyNot: whyNoDownload(backup) ?? whyNot("restore") ?? whyNot("create"),
      onChoose: () => void drill(backup, onChanged)
    },
    removalItem({
      verb: "Delete",
      whyNot: isFinished(backup) ? whyNot("restore") : `The backup is ${backup.state}.`,
      name: title,
      text: `The backup of ${dateTime(backup.created_at)} is deleted with its files${backup.pinned ? ", although it is pinned" : ""}. This cannot be undone.`,
      path: pathOf(backup),
      onEnded: onChanged
    })
  ]
}

const targetField = (reply: Reply<ReadonlyArray<BackupTarget>> | undefined): Field =>
  reply?.ok === true
    ? field("choice", "target", "Target", "Where the backup is stored.", {
        choices: [["", "As the blueprint says"], ...reply.body.map(({ id }) => [id, id] as const)]
      })
    : field("text", "target", "Target", "The id of a target. Empty: as the blueprint says.")

const quiesce = field(
  "choice",
  "quiesce",
  "While the files are read",
  "A server that is offline needs none of this.",
  {
    choices: [
      ["auto", "Save and hold still, if possible"],
      ["stop", "Stop it, and start it again"],
      ["pause", "Freeze it: players may drop out"],
      ["none", "Run on: files may change"]
    ]
  }
)

const kind = field(
  "choice",
  "kind",
  "Files",
  "Written files leave out the base that servers share, such as the software.",
  {
    choices: [
      ["", "Written files, if it has a base"],
      ["written", "Written files"],
      ["full", "All files"]
    ]
  }
)

const CreateDialog = (props: { readonly server: Server; readonly onChanged: () => void }): View => {
  const { onChanged, server } = props
  const { inputs, texts } = useForm({ kind: "", quiesce: "auto" })
  const [isPinned, setPinned] = useState(false)
  // Other keys do not see the targets.
  const targets = useReply<ReadonlyArray<BackupTarget>>(
    isAdmin() ? (signal) => get("/api/backup-targets", signal) : undefined,
    []
  )
  const isUp = server.status !== "offline"
  const fields = [name, kind, targetField(targets), ...(isUp ? [quiesce] : [])]
  return (
    <FormDialog<Operation>
      title="Back up the server"
      button="Back up"
      onSubmit={() =>
        request("POST", `/api/servers/${segment(server.id)}/backups`, {
          body: { ...bodyOf(fields, texts), ...(isPinned ? { pinned: true } : {}) }
        })
      }
      onDone={(begun) => {
        void ended(begun)
        onChanged()
      }}
    >
      {inputs(fields)}
      {checkField("Pin it, so that it stays until you delete it", isPinned, () => setPinned(!isPinned))}
    </FormDialog>
  )
}

export const askBackup = (server: Server, onChanged: () => void): void =>
  openDialog(<CreateDialog server={server} onChanged={onChanged} />)
