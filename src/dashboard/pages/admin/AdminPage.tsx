import { h } from "preact"
import { caller, isAdmin } from "../../api/session.ts"
import type { View } from "../../dom/el.ts"
import { empty, tabList } from "../../parts/parts.tsx"
import { addressOf } from "../../state/router.ts"
import { KeysPage } from "./KeysPage.tsx"
import { QuotasPage } from "./QuotasPage.tsx"
import { SettingsPage } from "./SettingsPage.tsx"
import { WebhooksPage } from "./WebhooksPage.tsx"

const parts = { keys: KeysPage, quotas: QuotasPage, webhooks: WebhooksPage, settings: SettingsPage } as const
const names = { keys: "Keys", quotas: "Quotas", webhooks: "Webhooks", settings: "Settings" } as const

export type AdminPart = keyof typeof parts

/** Keys, quotas, webhooks and settings, for keys of the scope `AppAdmin`; other keys see why they may not. */
export const AdminPage = ({ part }: { readonly part: AdminPart }): View => {
  const known = caller.value
  return (
    <div>
      <div class="across page-head">
        <h1>Admin</h1>
      </div>
      {tabList(
        "Parts of the administration",
        (["keys", "quotas", "webhooks", "settings"] as const).map((one) => ({
          text: names[one],
          address: addressOf[one],
          isShown: one === part
        }))
      )}
      {known !== undefined &&
        (isAdmin()
          ? h(parts[part], {})
          : empty(
              "key",
              "Only for keys of the scope AppAdmin",
              `The key “${known.name}” has the scope ${known.scope}. Sign in with another key to see this page.`
            ))}
    </div>
  )
}
