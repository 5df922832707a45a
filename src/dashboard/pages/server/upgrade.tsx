import { useEffect, useState } from "preact/hooks"
import { post, type Reply, segment } from "../../api/http.ts"
import type { DefinitionChange } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { Dialog, openDialog } from "../../parts/Dialog.tsx"
import { definitionChanges } from "../../parts/differences.tsx"
import { action, drawReply } from "../../parts/parts.tsx"
import { act } from "../../state/actions.ts"

interface Upgrade {
  readonly changes: ReadonlyArray<DefinitionChange>
  readonly revision: string
}

const UpgradeDialog = ({ id, onClose }: { readonly id: string; readonly onClose: () => void }): View => {
  const [plan, setPlan] = useState<Reply<Upgrade> | undefined>(undefined)
  useEffect(() => {
    void post<Upgrade>(`/api/servers/${segment(id)}/upgrade`, { dry_run: true }).then(setPlan)
  }, [id])
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
      <div class="dialog-actions">
        {action({ text: changes.length === 0 ? "Close" : "Cancel", onClick: onClose })}
        {changes.length > 0 &&
          action({
            text: `Upgrade with ${counted(changes.length, "change")}`,
            class: "primary",
            onClick: () => {
              onClose()
              void act(id, "upgrade", "Upgrade requested", {})
            }
          })}
      </div>
    </Dialog>
  )
}

/** Shows what an upgrade would change, and upgrades on confirmation. */
export const showUpgrade = (id: string): void =>
  openDialog((onClose) => <UpgradeDialog id={id} onClose={onClose} />)
