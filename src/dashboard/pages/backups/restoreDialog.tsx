/** The dialogs that replace the files of a server by those of a backup, or make another server of it (spec 12.5, 12.6). */
import { useState } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import { get, type Reply, request, segment, useReply } from "../../api/http.ts"
import { whyNoPower, whyNot } from "../../api/session.ts"
import type { Backup, Operation, RestorePlan, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { ago, bytes, count, dateTime } from "../../dom/format.ts"
import { FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { checkField, field, useForm } from "../../parts/form.tsx"
import { drawReply } from "../../parts/parts.tsx"
import { done } from "../../state/notices.ts"
import { tellOperation } from "../../state/operations.ts"
import { addressOf, go } from "../../state/router.ts"
import { nameOf } from "../../state/servers.ts"
import { BackupFolders } from "./BackupFolders.tsx"

/** Seconds for which a server that is to be restored may take to stop. */
const STOP_SECONDS = 60

/** The server whose files are replaced, as the list or its page has it. */
export type Restored = Pick<Server, "id" | "name" | "save" | "status">

const isOffline = ({ status }: Restored): boolean => status === "offline"

const whyNoRestore = (server: Restored): string | undefined => {
  if (isOffline(server)) return undefined
  if (server.save === false) return "The server is not saved: it would be deleted once it has stopped."
  return whyNoPower("stop")
}

/** Stops a server and waits until it is offline; returns why it is not. */
const stopped = async (id: string): Promise<Reply<unknown>> => {
  const path = `/api/servers/${segment(id)}`
  const reply = await request("POST", `${path}/power`, { body: { action: "stop" } })
  if (!reply.ok) return reply
  const server = await request<Server>("GET", `${path}?wait=offline&timeout=${STOP_SECONDS}&include=status`, {
    timeout: (STOP_SECONDS + 10) * 1000
  })
  if (!server.ok || server.body.status === "offline") return server
  return {
    ok: false,
    code: 409,
    detail: `The server has not stopped within ${STOP_SECONDS} s.`,
    hint: "Stop or kill it, then restore again."
  }
}

const restore = async (id: string, body: unknown, isUp: boolean): Promise<Reply<Operation>> => {
  const path = `/api/servers/${segment(id)}`
  // The dialog may be older than the status.
  const now = await get<Server>(`${path}?include=status`)
  if (!now.ok) return now
  if (isUp && now.body.status !== "offline") {
    const reply = await stopped(id)
    if (!reply.ok) return reply
  }
  return request("POST", `${path}/restore`, { body })
}

const what = field("choice", "what", "What to restore", "", {
  choices: [
    ["all", "All files"],
    ["some", "Only some files and folders"]
  ]
})
const mode = field("choice", "mode", "Files that are not in the backup", "Such as new ones.", {
  choices: [
    ["replace", "Delete them"],
    ["merge", "Keep them"]
  ]
})

const MOST_PATHS = 100

/** Why these files and folders cannot be restored, if so. */
const lackOf = ({ length }: ReadonlyArray<string>): string | undefined => {
  if (length === 0) return "Choose a file or folder first."
  return length > MOST_PATHS ? `${length} files and folders are chosen: ${MOST_PATHS} at most.` : undefined
}

const followed = async (begun: Operation, detail: string, onChanged: () => void): Promise<void> => {
  const name = nameOf(begun.server_id)
  await tellOperation(begun, {
    begun: `The restore of ${name} has begun`,
    fine: `Restored: ${name}`,
    detail,
    refused: `Not restored: ${name}, which has its old files`
  })
  onChanged()
}

/** Seconds within which the node compares the files. */
const PLAN_SECONDS = 90
/** Paths of each kind that the dialog shows. */
const SHOWN = 20

/** What the restore would change, with the paths on request. */
const Plan = ({ plan }: { readonly plan: RestorePlan }): View => {
  const { free_bytes, needed_bytes } = plan
  const kinds = [
    ["Comes back", plan.created],
    ["Changes", plan.changed],
    ["Is deleted", plan.removed],
    ...(plan.covered === undefined
      ? []
      : [["Is left out, because a volume or mount of the server hides it", plan.covered] as const])
  ] as const
  return (
    <>
      {kinds.map(([title, { bytes: size, count: number, first }]) =>
        number === 0 ? (
          <p key={title}>{`${title}: nothing`}</p>
        ) : (
          <details key={title}>
            <summary>{`${title}: ${count(number)} (${bytes(size)})`}</summary>
            <ul>
              {first.slice(0, SHOWN).map((path) => (
                <li key={path}>
                  <bdi>{legible(path)}</bdi>
                </li>
              ))}
              {number > SHOWN && <li>{`and ${count(number - SHOWN)} more`}</li>}
            </ul>
          </details>
        )
      )}
      {plan.definition !== undefined && (
        <p>{`Settings that change: ${plan.definition.map(({ path }) => path).join(", ") || "none"}`}</p>
      )}
      <p class={needed_bytes > free_bytes ? "problem" : "muted"}>
        {`It needs ${bytes(needed_bytes)} of the ${bytes(free_bytes)} that are free.${plan.unchanged.count === 0 ? "" : ` ${count(plan.unchanged.count)} files and folders stay as they are.`}`}
      </p>
    </>
  )
}

const RestoreDialog = (props: {
  readonly backup: Backup
  readonly title: string
  readonly server: Restored
  readonly onChanged: () => void
}): View => {
  const { backup, onChanged, server, title } = props
  const [isUp] = useState(!isOffline(server))
  const [isSafe, setSafe] = useState(true)
  const [isStarted, setStarted] = useState(isUp)
  const [isDefined, setDefined] = useState(false)
  const { inputs, texts } = useForm({ what: "all", mode: "replace" })
  const isPart = texts.what === "some"
  const isMerged = texts.mode === "merge"
  const [named, choose] = useState<ReadonlyArray<string>>([])
  const name = server.name ?? server.id
  const body = {
    ...{ backup_id: backup.id, safety: isSafe, start: isStarted },
    ...(isPart && { paths: named }),
    ...(isMerged && { mode: "merge" }),
    ...(isDefined && { definition: "backup" })
  }
  const lack = isPart ? lackOf(named) : undefined
  const plan = useReply<RestorePlan>(
    lack === undefined
      ? (signal) =>
          request("POST", `/api/servers/${segment(server.id)}/restore?dry_run=true`, {
            ...{ body, signal, timeout: PLAN_SECONDS * 1000 }
          })
      : undefined,
    [isPart, isMerged, isDefined, named.join("\n")],
    { settle: 400, isOther: true }
  )
  const restored = isPart ? "the chosen files and folders" : "the files"
  const undo = isSafe ? " To undo this, restore the backup that was made just before." : ""
  return (
    <FormDialog<Operation>
      title={`Restore ${name}?`}
      button={isUp ? "Stop and restore" : "Restore"}
      whyNot={whyNoRestore(server) ?? lack}
      onSubmit={() => restore(server.id, body, isUp)}
      onDone={(begun) => void followed(begun, `It has ${restored} of the backup ${title}.${undo}`, onChanged)}
    >
      <p>
        {`The server gets ${restored} `}
        {backup.name !== undefined && ["of the backup ", <strong key="name">{backup.name}</strong>, ", "]}
        {"as they were "}
        <strong>{ago(backup.created_at, Date.now())}</strong>
        {`, ${dateTime(backup.created_at)}. What players and plugins have written ${isPart ? "there " : ""}since is replaced. ${isPart ? "All other files" : isDefined ? "Ports and name" : "Settings, ports and name"} stay.`}
      </p>
      {inputs([what, mode])}
      {isPart && <BackupFolders backup={backup} chosen={{ paths: named, choose }} />}
      {lack === undefined && (
        <section class="restore-plan" aria-label="What changes">
          {drawReply(plan, "Comparing the files", (one) => (
            <Plan plan={one} />
          ))}
        </section>
      )}
      {isUp && <p class="note">The server is up. It stops first, and its players are disconnected.</p>}
      {backup.server_id === server.id &&
        whyNot("change") === undefined &&
        checkField("Also restore its settings of that time", isDefined, () => setDefined(!isDefined))}
      {checkField("Back up the present files first, to undo this within 7 days", isSafe, () =>
        setSafe(!isSafe)
      )}
      {checkField("Start the server afterwards", isStarted, () => setStarted(!isStarted))}
      {!isSafe && (
        <p class="problem" role="status">
          {isPart || isMerged ? "The files that are replaced are lost." : "The present files are lost."}
        </p>
      )}
    </FormDialog>
  )
}

export const askRestore = (backup: Backup, title: string, server: Restored, onChanged: () => void): void =>
  openDialog(<RestoreDialog backup={backup} title={title} server={server} onChanged={onChanged} />)

/** Why the key may not make a server of a backup, if so. */
export const whyNoServer = (): string | undefined => whyNot("restore") ?? whyNot("create")

const name = field("text", "name", "Name", "The name of the new server.")

const NewServerDialog = ({ backup, title }: { readonly backup: Backup; readonly title: string }): View => {
  const { blueprint_id, id, server_name = "" } = backup
  const { inputs, texts } = useForm({ name: server_name })
  const [isStarted, setStarted] = useState(true)
  const text = (texts.name ?? "").trim()
  return (
    <FormDialog<Server>
      title="New server from this backup"
      button="Create the server"
      onSubmit={() =>
        request("POST", "/api/servers", {
          body: { blueprint_id, from_backup: id, start: isStarted, ...(text === "" ? {} : { name: text }) }
        })
      }
      onDone={(server) => {
        done(`Created: ${text === "" ? server.id : text}`, `It gets the files of the backup ${title}.`)
        go(addressOf.server(server.id))
      }}
    >
      <p>{`It gets the files, labels and settings of the backup, the blueprint ${blueprint_id} as it is today, and new ports. Other servers stay as they are.`}</p>
      {inputs([name])}
      {checkField("Start the server afterwards", isStarted, () => setStarted(!isStarted))}
    </FormDialog>
  )
}

export const askNewServer = (backup: Backup, title: string): void =>
  openDialog(<NewServerDialog backup={backup} title={title} />)
