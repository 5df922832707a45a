/** What can be done with backups (spec 12.1), and the dialogs that ask for it. */
import { useState } from "preact/hooks"
import { post, request, segment } from "../../api/http.ts"
import { useTargets, whyNot } from "../../api/session.ts"
import type { Backup, Operation, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { dateTime } from "../../dom/format.ts"
import { FormDialog, openDialog, removalItem } from "../../parts/Dialog.tsx"
import { bodyOf, checkField, type Field, field, useForm } from "../../parts/form.tsx"
import type { MenuItem } from "../../parts/Menu.tsx"
import { failed, tell } from "../../state/notices.ts"
import { ended, tellOperation } from "../../state/operations.ts"
import { queryText, storeAddress } from "../files/fileApi.ts"
import { browse, pathOf } from "./BackupFolders.tsx"

/** The name of a backup for people; one without a name has its time. */
export const titleOf = ({ created_at, name }: Backup): string => name ?? dateTime(created_at)

export const download = (backup: Backup): Promise<void> =>
  storeAddress((ticket) => `${pathOf(backup)}/archive?${queryText({ ticket })}`)

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

const targetField = (ids: ReadonlyArray<string> | undefined): Field =>
  ids !== undefined
    ? field("choice", "target", "Target", "Where the backup is stored.", {
        choices: [["", "As the blueprint says"], ...ids.map((id) => [id, id] as const)]
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
  const targets = useTargets()
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
