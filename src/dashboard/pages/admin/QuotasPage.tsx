import { useState } from "preact/hooks"
import { request, segment } from "../../api/http.ts"
import { amounts } from "../../api/session.ts"
import type { NamedQuota } from "../../api/types.ts"
import { useGet } from "../../api/useGet.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { confirm, Dialog, dialogForm, openDialog } from "../../parts/Dialog.tsx"
import { FieldInput, numberIn } from "../../parts/fieldInput.tsx"
import { action, drawReply, empty } from "../../parts/parts.tsx"
import { done, failed } from "../../state/notices.ts"
import { useTick } from "../../state/useTick.ts"

const EVERY = 15_000

const titles = {
  max_servers: "Most servers",
  max_memory: "Most memory, MiB",
  max_cpu: "Most CPU, %",
  max_disk: "Most disk, MB"
} as const

const pathOf = ({ name }: NamedQuota): string => `/api/quotas/${segment(name)}`

/** The limits of a quota, for a new one or one that is there. */
const QuotaDialog = (props: {
  /** Undefined for a new quota. */
  readonly quota: NamedQuota | undefined
  readonly onClose: () => void
  readonly onStored: () => void
}): View => {
  const { onClose, onStored, quota } = props
  const [name, setName] = useState("")
  const [texts, setTexts] = useState<Readonly<Record<string, string>>>(() =>
    Object.fromEntries(amounts.map(([max]) => [max, String(quota?.[max] ?? "")]))
  )
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  const whyNot = quota === undefined && name.trim() === "" ? "Enter a name first." : undefined
  const store = async () => {
    if (isBusy || whyNot !== undefined) return
    setBusy(true)
    // Null removes a limit.
    const limits = Object.entries(texts).map(([max, text]) => [max, text === "" ? null : numberIn(text)])
    const body = Object.fromEntries(limits)
    const reply = await (quota === undefined
      ? request("POST", "/api/quotas", { body: { name: name.trim(), ...body } })
      : request("PATCH", pathOf(quota), { body }))
    setBusy(false)
    if (!reply.ok) return setProblem(`${reply.detail} ${reply.hint}`)
    onClose()
    onStored()
  }
  return (
    <Dialog title={quota === undefined ? "New quota" : `Change ${quota.name}`} onClose={onClose}>
      {dialogForm(
        () => void store(),
        quota === undefined && (
          <FieldInput label="Name" hint="Such as team-a." kind="text" value={name} onChange={setName} />
        ),
        <div class="fields">
          {amounts.map(([max]) => (
            <FieldInput
              key={max}
              label={titles[max]}
              hint="Empty: no limit."
              kind="number"
              value={texts[max] ?? ""}
              onChange={(text: string) => setTexts((before) => ({ ...before, [max]: text }))}
            />
          ))}
        </div>,
        problem !== "" && (
          <p class="problem" role="alert">
            {problem}
          </p>
        ),
        <div class="dialog-actions">
          {action({ text: "Cancel", onClick: onClose })}
          {action({
            text: quota === undefined ? "Create the quota" : "Store",
            class: "primary",
            whyNot,
            isBusy
          })}
        </div>
      )}
    </Dialog>
  )
}

const remove = async (quota: NamedQuota, onChanged: () => void): Promise<void> => {
  const reply = await request("DELETE", pathOf(quota))
  if (reply.ok) done(`Deleted: ${quota.name}`)
  else failed(`${quota.name} was not deleted`, reply)
  onChanged()
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
          confirm(
            `Delete ${quota.name}?`,
            "Servers stay. A quota that a valid key has is not deleted.",
            `Delete ${quota.name}`,
            () => void remove(quota, onChanged)
          )
      })}
    </td>
  </tr>
)

/** The quotas that keys share, with their use: created, changed and deleted here. */
export const QuotasPage = (): View => {
  const [tick, again] = useTick(EVERY)
  const reply = useGet<ReadonlyArray<NamedQuota>>("/api/quotas", tick)
  const edit = (quota?: NamedQuota) =>
    openDialog((onClose) => <QuotaDialog quota={quota} onClose={onClose} onStored={again} />)
  return (
    <div class="stack admin">
      <div class="across admin-head">
        <span class="muted">{reply?.ok === true ? counted(reply.body.length, "quota") : ""}</span>
        <span class="grow" />
        {action({ text: "New quota", icon: "plus", class: "primary", onClick: () => edit() })}
      </div>
      {drawReply(reply, "Loading the quotas", (all) =>
        all.length === 0 ? (
          empty("layers", "No quota yet", "A quota limits the servers of several keys together.")
        ) : (
          <table class="card listing">
            <thead>
              <tr>
                {["Quota", "Servers", "Memory, MiB", "CPU, %", "Disk, MB"].map((text) => (
                  <th key={text} scope="col">
                    {text}
                  </th>
                ))}
                <td />
              </tr>
            </thead>
            <tbody>{all.map((quota) => Row(quota, edit, again))}</tbody>
          </table>
        )
      )}
    </div>
  )
}
