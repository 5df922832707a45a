import { request, segment, useList } from "../../api/http.ts"
import type { BackupTarget, TestedTarget } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { FormDialog, openDialog, removalButton } from "../../parts/Dialog.tsx"
import { bodyOf, field, useForm } from "../../parts/form.tsx"
import { action, adminHead, drawReply, listing } from "../../parts/parts.tsx"
import { nodes } from "../../state/nodes.ts"
import { done, failed } from "../../state/notices.ts"

const EVERY = 30_000

type Changeable = Extract<BackupTarget, { readonly type: "s3" } | { readonly folder: string }>

const pathOf = (id: string): string => `/api/backup-targets/${segment(id)}`

const identity = [
  field("text", "id", "Id", "Such as offsite."),
  field("choice", "type", "Where", "", {
    choices: [
      ["s3", "A bucket of an S3 server"],
      ["node", "A folder of the nodes"]
    ]
  })
]

const ofFolder = [
  field(
    "text",
    "folder",
    "Folder",
    "An absolute path, which the setting MUSTER_NODE_BACKUP_FOLDERS of each node has to allow."
  )
]

const ofBucket = [
  field("text", "endpoint", "Endpoint", "The address, such as https://s3.eu-west-1.amazonaws.com."),
  field("text", "region", "Region", "Such as eu-west-1."),
  field("text", "bucket", "Bucket"),
  field("text", "prefix", "Prefix", "The beginning of the keys of its objects. Empty: none."),
  field("flag", "path_style", "Name of the bucket", "", {
    choices: [
      ["false", "In the host name"],
      ["true", "In the path, as MinIO needs"]
    ]
  }),
  field("text", "access_key_id", "Access key")
]

const secretOf = (isNew: boolean) =>
  field(
    "secret",
    "secret_access_key",
    "Secret access key",
    isNew ? "It is not shown again." : "Empty: the present one stays."
  )

const textsOf = (target: Changeable | undefined): Record<string, string> => {
  if (target === undefined) return { type: "s3", path_style: "false" }
  if (target.type === "node") return { type: "node", folder: target.folder }
  const { access_key_id, bucket, endpoint, path_style = false, prefix = "", region, type } = target
  return { type, endpoint, region, bucket, prefix, access_key_id, path_style: String(path_style) }
}

const TargetDialog = (props: { readonly target?: Changeable; readonly onStored: () => void }): View => {
  const { onStored, target } = props
  const isNew = target === undefined
  const { inputs, texts } = useForm(() => textsOf(target))
  const isFolder = texts.type === "node"
  const fields = isFolder ? ofFolder : [...ofBucket, secretOf(isNew)]
  const noPrefix = !isNew && !isFolder && (texts.prefix ?? "").trim() === ""
  const lacking = [...(isNew ? identity : []), ...fields].find(
    ({ path }) =>
      path !== "prefix" && (isNew || path !== "secret_access_key") && (texts[path] ?? "").trim() === ""
  )
  return (
    <FormDialog<BackupTarget>
      title={isNew ? "New target" : `Change ${target.id}`}
      button={isNew ? "Create the target" : "Store"}
      whyNot={lacking === undefined ? undefined : `Enter this first: ${lacking.label}.`}
      onSubmit={() =>
        isNew
          ? request<BackupTarget>("POST", "/api/backup-targets", {
              body: { ...bodyOf(identity, texts), ...bodyOf(fields, texts) }
            })
          : request<BackupTarget>("PATCH", pathOf(target.id), {
              body: { ...bodyOf(fields, texts), ...(noPrefix ? { prefix: null } : {}) }
            })
      }
      onDone={({ id }) => {
        done(`${isNew ? "Created" : "Changed"}: ${id}`, "Test it before it is used.")
        onStored()
      }}
      class="is-wide"
    >
      {isNew && inputs(identity)}
      {inputs(fields)}
    </FormDialog>
  )
}

const TestDialog = ({ id }: BackupTarget): View => {
  const chosen = field("choice", "node_id", "Node", "A node writes, reads and deletes a small object.", {
    choices: [
      ["", "Any that is connected"],
      ...nodes.value.map(({ id, name }): readonly [string, string] => [id, name])
    ]
  })
  const { inputs, texts } = useForm({ node_id: "" })
  return (
    <FormDialog<TestedTarget>
      title={`Test ${id}`}
      button="Test"
      onSubmit={() => request("POST", `${pathOf(id)}/test`, { body: bodyOf([chosen], texts) })}
      onDone={({ node_id, ok, reason = "", step = "use" }) =>
        ok
          ? done(`${id} works`, `Node ${node_id} can write, read and delete.`)
          : failed(`${id} does not work`, { detail: `Node ${node_id} cannot ${step}: ${reason}`, hint: "" })
      }
    >
      {inputs([chosen])}
    </FormDialog>
  )
}

const placeOf = (target: BackupTarget): View => {
  if (target.type === "s3")
    return (
      <>
        <code>{target.prefix === undefined ? target.bucket : `${target.bucket}/${target.prefix}`}</code>
        <span class="muted target-endpoint">{target.endpoint}</span>
      </>
    )
  return "folder" in target ? (
    <code>{target.folder}</code>
  ) : (
    <span class="muted">The data folder of the node of the server</span>
  )
}

const sources = { service: "always there", api: "API", file: "file" } as const

const Row = (target: BackupTarget, onChanged: () => void): View => {
  const { id, source } = target
  const whyNot = source === "file" ? "The file of MUSTER_BACKUP_TARGETS defines it." : undefined
  return (
    <tr key={id}>
      <th scope="row">
        <span class="cell-title">{id}</span>
      </th>
      <td>{target.type === "s3" ? "Bucket" : "Folder"}</td>
      <td>{placeOf(target)}</td>
      <td>
        <span class="tag">{sources[source]}</span>
      </td>
      <td class="cell-actions">
        {action({ text: "Test…", class: "ghost", onClick: () => openDialog(<TestDialog {...target} />) })}
        {(target.type === "s3" || "folder" in target) &&
          action({
            text: "Change…",
            class: "ghost",
            whyNot,
            onClick: () => openDialog(<TargetDialog target={target} onStored={onChanged} />)
          })}
        {source !== "service" &&
          removalButton({
            verb: "Delete",
            whyNot,
            name: id,
            text: "A target that has backups is not deleted. Its bucket or folder stays.",
            path: pathOf(id),
            onEnded: onChanged
          })}
      </td>
    </tr>
  )
}

/** Where backups are stored (spec 12.6). */
export const TargetsPage = (): View => {
  const { again, reply } = useList<BackupTarget>("/api/backup-targets", EVERY)
  const create = () => openDialog(<TargetDialog onStored={again} />)
  return (
    <div class="stack admin">
      {adminHead(reply?.ok === true ? counted(reply.body.length, "target") : "", "New target", create)}
      {drawReply(reply, "Loading the targets", (all) =>
        listing(
          ["Target", "Type", "Where", "Origin", ""],
          all.map((target) => Row(target, again)),
          "is-targets"
        )
      )}
    </div>
  )
}
