/** Servers that are not saved: they end with their files when they stop. */

import type { Power } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { counted } from "../dom/format.ts"
import { titleOf } from "../state/rows.ts"
import { rows } from "../state/servers.ts"
import { confirm } from "./Dialog.tsx"

export const notSaved = (): View => (
  <span class="tag" title="The server is deleted with its files once it has stopped.">
    not saved
  </span>
)

/** Asks before a stop or kill of servers that are not saved; else acts at once. */
export const askBeforeEnd = (ids: ReadonlyArray<string>, action: Power, onConfirm: () => void): void => {
  const ending = ids.flatMap((id) => {
    const row = rows.get(id)
    return row === undefined || row.isSaved || row.status === "offline" ? [] : [titleOf(row)]
  })
  const [first] = ending
  if ((action !== "stop" && action !== "kill") || first === undefined) {
    onConfirm()
    return
  }
  const which = ending.length === 1 ? "is" : `and ${counted(ending.length - 1, "other")} are`
  const verb = action === "stop" ? "Stop" : "Kill"
  confirm(
    `${verb} ${ids.length === 1 ? first : counted(ids.length, "server")}?`,
    `${first} ${which} not saved. Once stopped, such a server is deleted with its files. This cannot be undone.`,
    `${verb} and delete`,
    onConfirm
  )
}
