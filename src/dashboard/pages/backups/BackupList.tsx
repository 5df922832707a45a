import type { ComponentChildren } from "preact"
import { useEffect, useState } from "preact/hooks"
import { segment, useNewest } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Backup, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { ago, bytes, count, counted, dateTime } from "../../dom/format.ts"
import { Menu } from "../../parts/Menu.tsx"
import { operationBar } from "../../parts/operationBar.tsx"
import { action, drawReply, empty, listing, pageHead, searchField, status } from "../../parts/parts.tsx"
import { onEvent } from "../../state/live.ts"
import { figuresOf, isUnfinished, operations } from "../../state/operations.ts"
import { addressOf, follow } from "../../state/router.ts"
import { membership, rows } from "../../state/servers.ts"
import { askBackup, download, itemsOf, titleOf, whyNoDownload } from "./backupActions.tsx"
import { askNewServer, askRestore, whyNoServer } from "./restoreDialog.tsx"

/** Milliseconds between two readings without an event: ages grow. */
const EVERY = 30_000

/** The status whose colour a state of a backup has. */
const colours: Readonly<Record<Backup["state"], string>> = {
  queued: "offline",
  quiescing: "starting",
  copying: "starting",
  done: "running",
  failed: "unknown",
  deleting: "stopping"
}

const consistencies: Readonly<Record<NonNullable<Backup["consistency"]>, string>> = {
  stopped: "the server was offline",
  quiesced: "the server had saved, and held still",
  paused: "the server was frozen",
  crash: "the server was up"
}

const factsOf = ({
  changed_files = 0,
  consistency,
  drill,
  expires_at,
  files,
  kind,
  pinned,
  verified
}: Backup): string =>
  [
    ...(files === undefined ? [] : [counted(files, "file")]),
    ...(consistency === undefined ? [] : [consistencies[consistency]]),
    ...(kind === "written" ? ["the base is stored once for all servers"] : []),
    ...(changed_files === 0 ? [] : [`${count(changed_files)} changed while they were read`]),
    ...(drill?.ok === true ? [`a server of it ran in the drill of ${dateTime(drill.at)}`] : []),
    ...(verified?.ok === true ? [`every part was good on ${dateTime(verified.at)}`] : []),
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

interface Shown {
  /** The server of the page, if it is not deleted. */
  readonly server: Server | undefined
  /** Whether the list has backups of any server, so that each row names its server. */
  readonly isOfAny: boolean
}

const Row = (backup: Backup, now: number, shown: Shown, onChanged: () => void): View => {
  const {
    created_at,
    drill,
    id,
    name,
    pinned,
    reason,
    schedule,
    server_id,
    size_bytes,
    state,
    stored_bytes,
    verified
  } = backup
  const { isOfAny } = shown
  const server = shown.server ?? rows.get(server_id)
  const server_name = backup.server_name ?? server_id
  const title = titleOf(backup)
  const isDamaged = state === "done" && verified?.ok === false
  const whyNoUse = state === "done" ? undefined : `The backup is ${state}.`
  return (
    <tr key={id}>
      <th scope="row">
        <span class="across cell-title">
          {title}
          {pinned && <span class="tag">pinned</span>}
        </span>
        {isOfAny && (
          <a class="server-link" href={addressOf.server(server_id, "backups")} onClick={follow}>
            {server_name}
          </a>
        )}
        {schedule !== undefined && (
          <span class="backup-facts">
            <span class="muted">{"made by the schedule "}</span>
            <a href={addressOf.schedules(schedule.id)} onClick={follow}>
              {schedule.name}
            </a>
          </span>
        )}
        <span class="muted backup-facts">{factsOf(backup)}</span>
        {reason !== undefined && <span class="problem backup-facts">{reason}</span>}
        {verified?.ok === false && (
          <span class="problem backup-facts">{`The check of ${dateTime(verified.at)} failed: ${verified.reason}`}</span>
        )}
        {drill?.ok === false && (
          <span class="problem backup-facts">{`The drill of ${dateTime(drill.at)} failed: ${drill.reason}`}</span>
        )}
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
        {isDamaged ? status("damaged", colours.failed) : status(state, colours[state])}
        {(state === "queued" || state === "quiescing" || state === "copying") && <Progress {...backup} />}
      </td>
      <td class="cell-actions">
        <div class="power">
          {server === undefined
            ? action({
                text: "New server…",
                icon: "plus",
                whyNot: whyNoUse ?? whyNoServer(),
                onClick: () => askNewServer(backup, title)
              })
            : action({
                text: "Restore…",
                icon: "restart",
                whyNot: whyNoUse ?? whyNot("restore"),
                onClick: () => askRestore(backup, title, server, onChanged)
              })}
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
            items={[
              ...(server === undefined
                ? []
                : [
                    {
                      text: "New server from this backup…",
                      whyNot: whyNoUse ?? whyNoServer(),
                      onChoose: () => askNewServer(backup, title)
                    }
                  ]),
              ...itemsOf(backup, onChanged)
            ]}
          />
        </div>
      </td>
    </tr>
  )
}

/** Reads backups, newest first, and reads them again with each event of a backup. */
const useBackups = (id: string | undefined) => {
  const list = useNewest<Backup>(`/api/backups${id === undefined ? "" : `?server_id=${segment(id)}`}`, EVERY)
  useEffect(
    () =>
      onEvent(
        ({ Data, Topic }) => Topic === "backup" && (id === undefined || Data.server_id === id) && list.again()
      ),
    [id]
  )
  return list
}

/** The tab *Backups* of a server. Without `server`, it is of a deleted server; without `id`, of all servers. */
export const BackupList = (props: { readonly id?: string; readonly server?: Server }): ComponentChildren => {
  const { id, server } = props
  const { again, all, more, reply } = useBackups(id)
  const [words, setWords] = useState("")
  const isOfAny = id === undefined
  const wanted = words.trim().toLowerCase()
  const shown = all.filter(({ name = "", server_id, server_name = "" }) =>
    [name, server_id, server_name].some((text) => text.toLowerCase().includes(wanted))
  )
  // A server that comes or goes is restored or made again.
  membership.value
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
        <div class="across file-tools">
          {isOfAny && searchField("Filter servers and names", { value: words, onWords: setWords })}
          <span class="muted" role="status">
            {more === undefined ? counted(shown.length, "backup") : "The newest backups"}
          </span>
          <span class="grow" />
          {create}
        </div>
      )}
      {drawReply(reply, "Loading the backups", () =>
        all.length > 0 ? (
          listing(
            ["Backup", "Age", "Size", "State", ""],
            shown.map((backup) => Row(backup, now, { server, isOfAny }, again)),
            "backups"
          )
        ) : server === undefined && !isOfAny ? (
          <p class="muted">No backup of this server.</p>
        ) : (
          empty(
            "archive",
            "No backup yet",
            isOfAny
              ? "Back up a server in its tab Backups. This page then has the backups of all servers, deleted ones too."
              : "A backup brings back all files of the server as they are now. Make one before an update or an event.",
            ...(create === undefined ? [] : [create])
          )
        )
      )}
      {more !== undefined && <div>{action({ text: "Show more", onClick: more })}</div>}
    </div>
  )
}

/** The page *Backups*: those of all servers, newest first. */
export const BackupsPage = (): View => (
  <div>
    {pageHead("Backups", "Of all servers, deleted ones too")}
    <BackupList />
  </div>
)
