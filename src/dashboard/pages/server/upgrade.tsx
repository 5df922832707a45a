import { post, segment, useReply } from "../../api/http.ts"
import type { DefinitionChange } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { Dialog, dialogActions, openDialog } from "../../parts/Dialog.tsx"
import { definitionChanges } from "../../parts/differences.tsx"
import { action, drawReply } from "../../parts/parts.tsx"
import { act } from "../../state/actions.ts"

interface Upgrade {
  readonly changes: ReadonlyArray<DefinitionChange>
  readonly revision: string
}

const UpgradeDialog = ({ id, onClose }: { readonly id: string; readonly onClose: () => void }): View => {
  const plan = useReply(() => post<Upgrade>(`/api/servers/${segment(id)}/upgrade`, { dry_run: true }), [id])
  const changes = plan?.ok === true ? plan.body.changes : []
  return (
    <Dialog title="Upgrade to today’s blueprint" onClose={onClose} class="is-wide">
      {drawReply(
        plan,
        "Comparing the definitions",
        () =>
          changes.length === 0 ? (
            <p>The server has today’s definition already.</p>
          ) : (
            [<p>The server keeps its data, its id and its ports.</p>, definitionChanges(changes)]
          ),
        true
      )}
      {changes.length === 0 ? (
        <div class="dialog-actions">{action({ text: "Close", onClick: onClose })}</div>
      ) : (
        dialogActions(onClose, {
          text: `Upgrade with ${counted(changes.length, "change")}`,
          class: "primary",
          onClick: () => void act(id, "upgrade", "Upgrade requested", {})
        })
      )}
    </Dialog>
  )
}

export const showUpgrade = (id: string): void =>
  openDialog((onClose) => <UpgradeDialog id={id} onClose={onClose} />)
