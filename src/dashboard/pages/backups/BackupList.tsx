import type { ComponentChildren } from "preact"
import { useEffect, useState } from "preact/hooks"
import { segment, useGet, useTick } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Backup, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { ago, bytes, count, counted, dateTime } from "../../dom/format.ts"
import { Menu } from "../../parts/Menu.tsx"
import { operationBar } from "../../parts/operationBar.tsx"
import { action, drawReply, empty, listing, status } from "../../parts/parts.tsx"
import { onEvent } from "../../state/live.ts"
import { figuresOf, isUnfinished, operations } from "../../state/operations.ts"
import { askBackup, download, itemsOf, titleOf, whyNoDownload } from "./backupActions.tsx"

/** Milliseconds between two readings without an event: ages grow. */
const EVERY = 30_000
const PAGE = 20
const MOST = 100

/** The status whose colour a state of a backup has. */
const colours: Readonly<Record<Backup["state"], string>> = {
  queued: "offline",
  copying: "starting",
  done: "running",
  failed: "unknown",
  deleting: "stopping"
}

const consistencies: Readonly<Record<NonNullable<Backup["consistency"]>, string>> = {
  stopped: "the server was offline",
  crash: "the server was up"
}

const factsOf = ({ changed_files = 0, consistency, expires_at, files, pinned }: Backup): string =>
  [
    ...(files === undefined ? [] : [counted(files, "file")]),
    ...(consistency === undefined ? [] : [consistencies[consistency]]),
    ...(changed_files === 0 ? [] : [`${count(changed_files)} changed while they were read`]),
    ...(expires_at === undefined || pinned ? [] : [`kept until ${dateTime(expires_at)}`])
  ].join(", ")

const Progress = ({ operation_id }: Backup): View | null => {
  const operation = operations.value.find(({ id }) => id === operation_id)
  if (operation === undefined || !isUnfinished(operation)) return null
  return (
    <>
      {operationBar(operation)}
      <span class="muted small">{figuresOf(operation)}</span>
    </>
  )
}

const Row = (backup: Backup, now: number, onChanged: () => void): View => {
  const { created_at, id, name, pinned, reason, size_bytes, state, stored_bytes } = backup
  const title = titleOf(backup)
  return (
    <tr key={id}>
      <th scope="row">
        <span class="across cell-title">
          {title}
          {pinned && <span class="tag">pinned</span>}
        </span>
        <span class="muted backup-facts">{factsOf(backup)}</span>
        {reason !== undefined && <span class="problem backup-facts">{reason}</span>}
      </th>
      <td>
        <time dateTime={created_at} title={dateTime(created_at)}>
          {ago(created_at, now)}
        </time>
      </td>
      <td>
        {size_bytes !== undefined && (
          <span
            class="backup-size"
            title={stored_bytes === undefined ? undefined : `${bytes(stored_bytes)} stored`}
          >
            {bytes(size_bytes)}
          </span>
        )}
      </td>
      <td class="backup-state">
        {status(state, colours[state])}
        {(state === "queued" || state === "copying") && <Progress {...backup} />}
      </td>
      <td class="cell-actions">
        <div class="power">
          {action({
            text: "Download",
            icon: "download",
            class: "ghost",
            whyNot: whyNoDownload(backup),
            onClick: () => void download(backup)
          })}
          <Menu
            label={`Actions on the backup ${name ?? title}`}
            class="ghost square"
            items={itemsOf(backup, onChanged)}
          />
        </div>
      </td>
    </tr>
  )
}

/** Backups newest first; read again with each event of one. */
const useBackups = (id: string) => {
  const [limit, setLimit] = useState(PAGE)
  const [tick, again] = useTick(EVERY)
  useEffect(() => onEvent(({ Data, Topic }) => Topic === "backup" && Data.server_id === id && again()), [id])
  const reply = useGet<ReadonlyArray<Backup>>(`/api/backups?server_id=${segment(id)}&limit=${limit}`, tick)
  const all = reply?.ok === true ? reply.body : []
  const hasMore = all.length >= limit && limit < MOST
  return { reply, all, again, more: hasMore ? () => setLimit(MOST) : undefined }
}

/** The tab *Backups* of a server; without a server, the backups that a deleted one has left. */
export const BackupList = (props: { readonly id: string; readonly server?: Server }): ComponentChildren => {
  const { id, server } = props
  const { again, all, more, reply } = useBackups(id)
  const now = Date.now()
  const create =
    server === undefined
      ? undefined
      : action({
          text: "Back up now…",
          icon: "plus",
          class: "primary",
          whyNot: whyNot("backups"),
          onClick: () => askBackup(server, again)
        })
  return (
    <div class="stack">
      {all.length > 0 && (
        <div class="across">
          <span class="muted">
            {more === undefined ? counted(all.length, "backup") : "The newest backups"}
          </span>
          <span class="grow" />
          {create}
        </div>
      )}
      {drawReply(reply, "Loading the backups", () =>
        all.length > 0 ? (
          listing(
            ["Backup", "Age", "Size", "State", ""],
            all.map((backup) => Row(backup, now, again)),
            "backups"
          )
        ) : server === undefined ? (
          <p class="muted">No backup of this server.</p>
        ) : (
          empty(
            "archive",
            "No backup yet",
            "A backup has all files of the server as they are now. Make one before an update or an event.",
            create
          )
        )
      )}
      {more !== undefined && <div>{action({ text: "Show more", onClick: more })}</div>}
    </div>
  )
}
