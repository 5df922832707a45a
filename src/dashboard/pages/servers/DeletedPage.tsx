import { hasNext, request, segment, useGet, useList } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { ago, count, counted, duration } from "../../dom/format.ts"
import { removalButton } from "../../parts/Dialog.tsx"
import { action, drawReply, empty, listing, pageHead } from "../../parts/parts.tsx"
import { tell } from "../../state/notices.ts"
import { addressOf, follow, go } from "../../state/router.ts"

const EVERY = 10_000
const LIST = "/api/servers?deleted=true"

const portsText = ({ ports_changed = [] }: Server): string =>
  ports_changed.map(({ from, to }) => `Its port ${from} is taken: it has ${to} in its place.`).join(" ")

const Row = (server: Server, onChanged: () => void): View => {
  const { blueprint_id, deleted_at = "", id, node_name, purge_at = "" } = server
  const name = server.name || id
  const now = Date.now()
  const undelete = () =>
    tell(
      request<Server>("POST", `/api/servers/${segment(id)}/undelete`),
      `Undeleted: ${name}`,
      `${name} was not undeleted`,
      portsText
    ).then((ok) => (ok ? go(addressOf.server(id)) : onChanged()))
  return (
    <tr key={id}>
      <th scope="row">
        <span class="across cell-title">{name}</span>
        <code>{id}</code>
      </th>
      <td>{`${blueprint_id} on ${node_name}`}</td>
      <td>{ago(deleted_at, now)}</td>
      <td>{`in ${duration(Math.max(0, Date.parse(purge_at) - now))}`}</td>
      <td class="cell-actions">
        {action({
          text: "Undelete",
          class: "ghost",
          whyNot: whyNot("delete") ?? whyNot("create"),
          onClick: () => void undelete()
        })}
        {removalButton(
          {
            verb: "Delete",
            whyNot: whyNot("delete"),
            name,
            text: "This destroys its files and its worlds now. It cannot be undone.",
            path: `/api/servers/${segment(id)}?purge=true`,
            onEnded: onChanged
          },
          "Delete now…"
        )}
      </td>
    </tr>
  )
}

/** Deleted servers whose files are kept. */
export const DeletedPage = (): View => {
  const { again, reply } = useList<Server>(`${LIST}&include=name`, EVERY)
  return (
    <div class="stack">
      {pageHead("Deleted servers", "Saved servers that have run, until their files are removed.")}
      {drawReply(reply, "Loading the deleted servers", (all) =>
        all.length === 0
          ? empty(
              "trash",
              "No deleted server",
              "A saved server that has run is kept here once it is deleted."
            )
          : listing(
              ["Server", "Blueprint", "Deleted", "Files removed", ""],
              all.map((server) => Row(server, again))
            )
      )}
      {reply?.ok === true && hasNext(reply) && (
        <p class="note">{`These are the ${count(reply.body.length)} that were deleted last. To find others: muster servers list --deleted --search NAME.`}</p>
      )}
    </div>
  )
}

/** Leads to the deleted servers that can be undeleted, if there are some. */
export const DeletedNote = (): View | null => {
  const reply = useGet<ReadonlyArray<Server["id"]>>(`${LIST}&ids_only=true`)
  if (reply?.ok !== true || reply.body.length === 0) return null
  return (
    <a href={addressOf.deleted} onClick={follow}>
      {`${hasNext(reply) ? "More than " : ""}${counted(reply.body.length, "deleted server")} can be undeleted`}
    </a>
  )
}

interface Kept {
  readonly keep_deleted_seconds?: number
}

/** Says for how long the files of deleted servers are kept. */
export const KeptFor = (): View => {
  const reply = useGet<Kept>("/api/system?include=keep_deleted")
  const seconds = reply?.ok === true ? (reply.body.keep_deleted_seconds ?? 0) : undefined
  return (
    <p class="muted">
      {seconds === undefined
        ? ""
        : seconds === 0
          ? "Deleted files are removed at once. This cannot be undone."
          : `The files of a saved server that has run are kept for ${duration(seconds * 1000)}: to get it back, choose “Deleted” above the list of servers. Other files are removed at once.`}
    </p>
  )
}
