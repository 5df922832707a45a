import { useState } from "preact/hooks"
import { request } from "../../api/http.ts"
import { quotaText } from "../../api/session.ts"
import type { Key, KeyScope, NamedQuota } from "../../api/types.ts"
import { useGet } from "../../api/useGet.ts"
import type { View } from "../../dom/el.ts"
import { FormDialog } from "../../parts/Dialog.tsx"
import { FieldInput, type FieldKind } from "../../parts/fieldInput.tsx"
import { checks } from "../../parts/parts.tsx"
import { bodyOf, emptyKeyForm, type KeyForm, rights, scopes, takesLimits, takesRights } from "./keyForm.ts"

export type NewKey = Key & { readonly key: string }

/** Asks for the name, the scope and the limits of a key, and creates it. */
export const NewKeyDialog = (props: {
  readonly onClose: () => void
  readonly onCreated: (key: NewKey) => void
}): View => {
  const [values, setValues] = useState<KeyForm>(emptyKeyForm)
  const set = (change: Partial<KeyForm>) => setValues((before) => ({ ...before, ...change }))
  const found = useGet<ReadonlyArray<NamedQuota>>("/api/quotas", 0)
  const quotas = found?.ok === true ? found.body : []
  const field = (name: keyof KeyForm, title: string, hint: string, kind: FieldKind = "text") => (
    <FieldInput
      key={name}
      label={title}
      hint={hint}
      kind={kind}
      value={String(values[name])}
      onChange={(text: string) => set({ [name]: text })}
    />
  )
  return (
    <FormDialog
      title="New key"
      button="Create the key"
      whyNot={values.name.trim() === "" ? "Enter a name first." : undefined}
      onSubmit={() => request<NewKey>("POST", "/api/keys", { body: bodyOf(values) })}
      onDone={props.onCreated}
      onClose={props.onClose}
      class="is-wide"
    >
      <div class="fields">
        {field("name", "Name", "The program or person that has it.")}
        <FieldInput
          label="Scope"
          kind="choice"
          choices={scopes}
          value={values.scope}
          // The choices are scopes.
          onChange={(text: string) => set({ scope: text as KeyScope })}
        />
        {field("expires", "Valid for, days", "Empty: until it is revoked.", "number")}
      </div>
      {takesRights(values.scope) &&
        checks({
          name: "Rights",
          choices: rights,
          chosen: values.rights,
          onChange: (chosen) => set({ rights: chosen })
        })}
      {takesLimits(values.scope) && [
        <p key="limits" class="muted">
          Limits. An empty one limits nothing; a server must meet all.
        </p>,
        <div key="fields" class="fields">
          {field("servers", "Servers", "Ids, separated by spaces.")}
          {field("blueprints", "Blueprints", "Ids, separated by spaces.")}
          {field("labels", "Labels", "One key=value a line.", "pairs")}
          {takesRights(values.scope) && [
            field("maxServers", "Most servers", "That it has created and that exist.", "number"),
            field("maxMemory", "Most memory, MiB", "The sum of their memory limits.", "number"),
            quotas.length > 0 && (
              <FieldInput
                key="quota"
                label="Shared quota"
                hint="Its keys count together."
                kind="choice"
                choices={[
                  ["", "None"],
                  ...quotas.map((quota) => [quota.name, `${quota.name}: ${quotaText(quota)}`] as const)
                ]}
                value={values.quota}
                onChange={(text: string) => set({ quota: text })}
              />
            )
          ]}
        </div>
      ]}
    </FormDialog>
  )
}
