import { useState } from "preact/hooks"
import { request, segment } from "../../api/http.ts"
import { whyNot } from "../../api/session.ts"
import type { Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { Dialog, dialogActions, openDialog } from "../../parts/Dialog.tsx"
import { differences } from "../../parts/differences.tsx"
import { FieldInput, nested, problemIn, type Texts } from "../../parts/form.tsx"
import { action } from "../../parts/parts.tsx"
import { done, failed } from "../../state/notices.ts"
import { changesOf, type FieldChange, fields } from "./fields.ts"
import { showUpgrade } from "./PowerButtons.tsx"

/** The form with the fields of a server; the difference is shown before it is saved. */
export const Changes = (props: { readonly server: Server; readonly onChanged: () => void }): View => {
  // The input stays when the server changes meanwhile.
  const [texts, setTexts] = useState<Texts>({})
  const lacks = whyNot("change")
  const changes = changesOf(props.server, texts)
  const problem = problemIn(
    fields.map(([field]) => field),
    texts
  )
  const saveChanges = async (confirmed: ReadonlyArray<FieldChange>) => {
    const reply = await request<Server>("PATCH", `/api/servers/${segment(props.server.id)}`, {
      body: nested(confirmed)
    })
    if (!reply.ok) return failed("The server was not changed", reply)
    const { pending = [] } = reply.body
    done(
      `Changed: ${counted(confirmed.length, "field")}`,
      pending.length > 0 ? "The next start applies changes of the definition." : ""
    )
    setTexts({})
    props.onChanged()
  }
  const review = () =>
    openDialog(
      <Dialog title={`Change ${props.server.name ?? props.server.id}?`} class="is-wide">
        {differences(changes)}
        <p class="muted">
          Name, labels and expiry change at once. A server that is up gets other changes at its next start.
        </p>
        {dialogActions({
          text: `Save ${counted(changes.length, "change")}`,
          class: "primary",
          onClick: () => void saveChanges(changes)
        })}
      </Dialog>
    )
  return (
    <form
      class="stack card panel"
      onSubmit={(event: Event) => {
        event.preventDefault()
        if (changes.length > 0 && lacks === undefined && problem === undefined) review()
      }}
    >
      {lacks !== undefined && <p class="note">{`${lacks} The fields can be read only.`}</p>}
      <div class="fields">
        {fields.map(([field, read]) => (
          <FieldInput
            key={field.path}
            field={field}
            isReadOnly={lacks !== undefined}
            text={texts[field.path] ?? read(props.server)}
            onChange={(text) => setTexts((before) => ({ ...before, [field.path]: text }))}
          />
        ))}
      </div>
      <div class="across form-actions">
        {action({
          text: "Upgrade to today’s blueprint…",
          whyNot: lacks,
          onClick: () => showUpgrade(props.server.id)
        })}
        <div class="grow" />
        {changes.length > 0 && action({ text: "Discard", class: "ghost", onClick: () => setTexts({}) })}
        {action({
          text: changes.length === 0 ? "No changes" : `Review ${counted(changes.length, "change")}`,
          class: "primary",
          whyNot: lacks ?? problem ?? (changes.length === 0 ? "Change a field first." : undefined),
          onClick: review
        })}
      </div>
    </form>
  )
}
