import { useState } from "preact/hooks"
import { request, segment, useGet } from "../../api/http.ts"
import { amounts } from "../../api/session.ts"
import type { NamedQuota } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { confirmRemoval, FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { FieldInput, numberIn, useForm } from "../../parts/fieldInput.tsx"
import { action, adminHead, drawReply, empty, listing } from "../../parts/parts.tsx"
import { useTick } from "../../state/whileVisible.ts"

const EVERY = 15_000

const titles = {
  max_servers: "Most servers",
  max_memory: "Most memory, MiB",
  max_cpu: "Most CPU, %",
  max_disk: "Most disk, MB"
} as const

const pathOf = ({ name }: NamedQuota): string => `/api/quotas/${segment(name)}`

const QuotaDialog = (props: {
  readonly quota: NamedQuota | undefined
  readonly onClose: () => void
  readonly onStored: () => void
}): View => {
  const { onClose, onStored, quota } = props
  const [name, setName] = useState("")
  const { field, values: texts } = useForm(
    (): Readonly<Record<string, string>> =>
      Object.fromEntries(amounts.map(([max]) => [max, String(quota?.[max] ?? "")]))
  )
  const submit = () => {
    // Null removes a limit.
    const limits = Object.entries(texts).map(([max, text]) => [max, text === "" ? null : numberIn(text)])
    const body = Object.fromEntries(limits)
    return quota === undefined
      ? request("POST", "/api/quotas", { body: { name: name.trim(), ...body } })
      : request("PATCH", pathOf(quota), { body })
  }
  return (
    <FormDialog
      title={quota === undefined ? "New quota" : `Change ${quota.name}`}
      button={quota === undefined ? "Create the quota" : "Store"}
      whyNot={quota === undefined && name.trim() === "" ? "Enter a name first." : undefined}
      onSubmit={submit}
      onDone={onStored}
      onClose={onClose}
    >
      {quota === undefined && (
        <FieldInput label="Name" hint="Such as team-a." kind="text" value={name} onChange={setName} />
      )}
      <div class="fields">
        {amounts.map(([max]) => field(max, titles[max], "Empty: no limit.", { kind: "number" }))}
      </div>
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
      {action({
        text: "Delete…",
        class: "ghost is-dangerous",
        onClick: () =>
          confirmRemoval({
            verb: "Delete",
            name: quota.name,
            text: "Servers stay. A quota that a valid key has is not deleted.",
            path: pathOf(quota),
            onEnded: onChanged
          })
      })}
    </td>
  </tr>
)

export const QuotasPage = (): View => {
  const [tick, again] = useTick(EVERY)
  const reply = useGet<ReadonlyArray<NamedQuota>>("/api/quotas", tick)
  const edit = (quota?: NamedQuota) =>
    openDialog((onClose) => <QuotaDialog quota={quota} onClose={onClose} onStored={again} />)
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
