import { request, segment, useList } from "../../api/http.ts"
import { amounts } from "../../api/session.ts"
import type { NamedQuota } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { FormDialog, openDialog, removalButton } from "../../parts/Dialog.tsx"
import { bodyOf, field, useForm } from "../../parts/form.tsx"
import { action, adminHead, drawReply, empty, listing } from "../../parts/parts.tsx"

const EVERY = 15_000

const titles = {
  max_servers: "Most servers",
  max_memory: "Most memory, MiB",
  max_cpu: "Most CPU, %",
  max_disk: "Most disk, MB"
} as const

const nameField = field("text", "name", "Name", "Such as team-a.")
const limits = amounts.map(([max]) => field("number", max, titles[max], "Empty: no limit."))

const pathOf = ({ name }: NamedQuota): string => `/api/quotas/${segment(name)}`

const QuotaDialog = (props: {
  readonly quota: NamedQuota | undefined
  readonly onStored: () => void
}): View => {
  const { onStored, quota } = props
  const { inputs, texts } = useForm(() =>
    Object.fromEntries(amounts.map(([max]) => [max, String(quota?.[max] ?? "")]))
  )
  // Null removes a limit.
  const body = bodyOf(quota === undefined ? [nameField, ...limits] : limits, texts, true)
  return (
    <FormDialog
      title={quota === undefined ? "New quota" : `Change ${quota.name}`}
      button={quota === undefined ? "Create the quota" : "Save"}
      whyNot={quota === undefined && !texts.name?.trim() ? "Enter a name first." : undefined}
      onSubmit={() =>
        quota === undefined
          ? request("POST", "/api/quotas", { body })
          : request("PATCH", pathOf(quota), { body })
      }
      onDone={onStored}
    >
      {inputs(quota === undefined ? [nameField, ...limits] : limits)}
    </FormDialog>
  )
}

const Row = (quota: NamedQuota, edit: (quota: NamedQuota) => void, onChanged: () => void): View => (
  <tr key={quota.name}>
    <th scope="row">
      <span class="across cell-title">{quota.name}</span>
    </th>
    {amounts.map(([max, use]) => (
      <td key={max}>{`${quota.used[use]} of ${quota[max] ?? "any"}`}</td>
    ))}
    <td class="cell-actions">
      {action({ text: "Change…", class: "ghost", onClick: () => edit(quota) })}
      {removalButton({
        verb: "Delete",
        name: quota.name,
        text: "Servers stay. A quota that a valid key has is not deleted.",
        path: pathOf(quota),
        onEnded: onChanged
      })}
    </td>
  </tr>
)

export const QuotasPage = (): View => {
  const { again, reply } = useList<NamedQuota>("/api/quotas", EVERY)
  const edit = (quota?: NamedQuota) => openDialog(<QuotaDialog quota={quota} onStored={again} />)
  return (
    <div class="stack admin">
      {adminHead(reply?.ok === true ? counted(reply.body.length, "quota") : "", "New quota", () => edit())}
      {drawReply(reply, "Loading the quotas", (all) =>
        all.length === 0
          ? empty("layers", "No quota yet", "A quota limits the servers of several keys together.")
          : listing(
              ["Quota", "Servers", "Memory, MiB", "CPU, %", "Disk, MB", ""],
              all.map((quota) => Row(quota, edit, again))
            )
      )}
    </div>
  )
}
