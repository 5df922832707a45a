/** The dialogs that change files. */
import { useEffect, useState } from "preact/hooks"
import { legible } from "../../../contract/domain/fileTexts.ts"
import { type Reply, request, segment } from "../../api/http.ts"
import type { FileEntry, SftpLogin } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted, dateTime } from "../../dom/format.ts"
import { Dialog, dialogActions, FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { checkField, field, useForm } from "../../parts/form.tsx"
import { copyable, copyButton, drawReply, fact } from "../../parts/parts.tsx"
import { done, failed } from "../../state/notices.ts"
import { addressOf, go } from "../../state/router.ts"
import { changeFiles, folderPath, packFiles, pathIn, tellChange, writeText } from "./fileApi.ts"

const SftpDialog = ({ id }: { readonly id: string }): View => {
  const [reply, setReply] = useState<Reply<SftpLogin>>()
  useEffect(() => {
    void request<SftpLogin>("POST", `/api/servers/${segment(id)}/sftp`).then(setReply)
  }, [id])
  const draw = ({ expires_at, fingerprint, host, password, port, username }: SftpLogin) => {
    const address = host.includes(":") ? `[${host}]` : host
    return (
      <>
        <p>
          The password has the rights of your key, and opens the files of this server only. A connection lasts
          12 hours at most.
        </p>
        <dl class="facts">
          {fact("Address", copyable(`sftp://${username}@${address}:${port}`))}
          {fact("Host", copyable(host))}
          {fact("Port", copyable(String(port)))}
          {fact("User name", copyable(username))}
          {fact("Password", [<code key="text">{password}</code>, copyButton(password, "the password")])}
          {fact("Connect until", <time dateTime={expires_at}>{dateTime(expires_at)}</time>)}
          {fact("Fingerprint", copyable(fingerprint))}
        </dl>
      </>
    )
  }
  return (
    <Dialog title="SFTP" class="is-wide">
      {drawReply(reply, "Making a password", draw, true)}
    </Dialog>
  )
}

/** Makes a password for SFTP, and shows it with all that an SFTP program asks for. */
export const showSftp = (id: string): void => openDialog(<SftpDialog id={id} />)

/** The folder that a dialog changes, with a slash at the end of its path. */
export interface Place {
  readonly id: string
  readonly path: string
  readonly onChanged: () => void
}

const name = field("text", "name", "Name")

const whyNoName = (text: string): string | undefined =>
  text === "" ? "Enter a name." : text.includes("/") ? "A name has no slash." : undefined

const NameDialog = (props: {
  readonly title: string
  readonly button: string
  readonly initial?: string
  readonly onSubmit: (name: string) => ReturnType<typeof changeFiles>
  readonly onDone: (name: string) => void
}): View => {
  const { inputs, texts } = useForm({ name: props.initial ?? "" })
  const text = texts.name ?? ""
  return (
    <FormDialog
      title={props.title}
      button={props.button}
      whyNot={whyNoName(text)}
      onSubmit={() => props.onSubmit(text)}
      onDone={() => props.onDone(text)}
    >
      {inputs([name])}
    </FormDialog>
  )
}

export const askNewFolder = ({ id, onChanged, path }: Place): void =>
  openDialog(
    <NameDialog
      title="New folder"
      button="Create the folder"
      onSubmit={(text) => changeFiles(id, "folder", { path: pathIn(path, text) })}
      onDone={(text) => {
        done(`Created: ${legible(text)}`)
        onChanged()
      }}
    />
  )

export const askNewFile = ({ id, path }: Place): void =>
  openDialog(
    <NameDialog
      title="New file"
      button="Create the file"
      onSubmit={(text) => writeText(id, pathIn(path, text), "")}
      onDone={(text) => go(addressOf.files(id, pathIn(path, text)))}
    />
  )

export const askRename = ({ id, onChanged, path }: Place, entry: FileEntry): void =>
  openDialog(
    <NameDialog
      title={`Rename ${legible(entry.name)}`}
      button="Rename"
      initial={entry.name}
      onSubmit={(text) =>
        changeFiles(id, "move", { moves: [{ from: pathIn(path, entry.name), to: pathIn(path, text) }] })
      }
      onDone={(text) => {
        done(`Renamed: ${legible(text)}`)
        onChanged()
      }}
    />
  )

const verbs = {
  move: { title: "Move", past: "Moved", list: "moves" },
  copy: { title: "Copy", past: "Copied", list: "copies" }
} as const

interface TargetProps {
  readonly place: Place
  readonly names: ReadonlyArray<string>
  readonly kind: keyof typeof verbs
}

const shortOf = (names: ReadonlyArray<string>): string =>
  names.length === 1 ? legible(names[0] ?? "") : `${names.length} entries`

/** Says what came of a change, such as `Packed: world.zip`. */
const told = (past: string, name: string, onChanged: () => void) => (body: unknown) =>
  void tellChange(
    body,
    { fine: `${past}: ${name}`, refused: `Not ${past.toLowerCase()}: ${name}` },
    onChanged
  )

const TargetDialog = ({ kind, names, place: { id, onChanged, path } }: TargetProps): View => {
  const { list, past, title } = verbs[kind]
  const { inputs, set, texts } = useForm({ to: path, replace: "" })
  const isReplacing = texts.replace === "true"
  const entries = names.map((one) => ({ from: pathIn(path, one), to: pathIn(texts.to ?? "", one) }))
  const submit = () =>
    changeFiles(id, kind, { [list]: entries, ...(isReplacing && { overwrite: "replace" }) })
  return (
    <FormDialog
      title={`${title} ${shortOf(names)}`}
      button={title}
      onSubmit={submit}
      onDone={told(past, shortOf(names), onChanged)}
    >
      {inputs([field("text", "to", "To folder", "A path, such as /plugins/.")])}
      {checkField("Replace files that exist there", isReplacing, () =>
        set("replace", isReplacing ? "" : "true")
      )}
    </FormDialog>
  )
}

export const askTarget = (kind: TargetProps["kind"], place: Place, names: ReadonlyArray<string>): void =>
  openDialog(<TargetDialog kind={kind} place={place} names={names} />)

const ARCHIVES = [".zip", ".tar.zst", ".tar.gz", ".tar"]

const PackDialog = ({ names, place: { id, onChanged, path } }: Omit<TargetProps, "kind">): View => {
  const first = names.length === 1 ? names[0] : undefined
  const { inputs, set, texts } = useForm({ name: `${first ?? "files"}.zip`, replace: "" })
  const text = texts.name ?? ""
  const isReplacing = texts.replace === "true"
  const paths = names.map((one) => pathIn(path, one))
  const isArchive = ARCHIVES.some((end) => text.endsWith(end))
  return (
    <FormDialog
      title={`Pack ${shortOf(names)}`}
      button="Pack"
      whyNot={whyNoName(text) ?? (isArchive ? undefined : `End the name with ${ARCHIVES.join(", ")}.`)}
      onSubmit={() => packFiles(id, paths, pathIn(path, text), isReplacing)}
      onDone={told("Packed", legible(text), onChanged)}
    >
      {inputs([
        field(
          "text",
          "name",
          "Archive",
          `In this folder. The name decides the format: ${ARCHIVES.join(", ")}.`
        )
      ])}
      {checkField("Replace the archive if it exists", isReplacing, () =>
        set("replace", isReplacing ? "" : "true")
      )}
    </FormDialog>
  )
}

export const askPack = (place: Place, names: ReadonlyArray<string>): void =>
  openDialog(<PackDialog place={place} names={names} />)

const overwriteChoices = [
  ["fail", "Unpack nothing"],
  ["skip", "Leave these files as they are"],
  ["replace", "Replace these files"]
] as const

const UnpackDialog = (props: { readonly place: Place; readonly archive: string }): View => {
  const { archive, place } = props
  const { id, onChanged, path } = place
  const { inputs, texts } = useForm({ to: path, overwrite: "fail" })
  const submit = () =>
    changeFiles(id, "unpack", {
      path: pathIn(path, archive),
      to: folderPath(texts.to ?? path),
      overwrite: texts.overwrite
    })
  return (
    <FormDialog
      title={`Unpack ${legible(archive)}`}
      button="Unpack"
      onSubmit={submit}
      onDone={told("Unpacked", legible(archive), onChanged)}
    >
      {inputs([
        field("text", "to", "To folder", "A path, such as /world/. It is made if it is missing."),
        field("choice", "overwrite", "If files exist there", "", { choices: overwriteChoices })
      ])}
    </FormDialog>
  )
}

/** Whether the name of a file is that of an archive which can be unpacked. */
export const isArchive = (name: string): boolean => /\.(?:zip|tar|tar\.gz|tgz|tar\.zst|tzst)$/i.test(name)

export const askUnpack = (place: Place, archive: string): void =>
  openDialog(<UnpackDialog place={place} archive={archive} />)

/** Names that a question lists. */
const MOST = 50

export const askDelete = (place: Place, entries: ReadonlyArray<FileEntry>): void => {
  const { id, onChanged, path } = place
  const names = entries.map((entry) => entry.name)
  const paths = names.map((one) => pathIn(path, one))
  const refused = `${shortOf(names)} not deleted`
  const remove = async () => {
    const reply = await changeFiles(id, "delete", { paths })
    if (reply.ok) return tellChange(reply.body, { fine: `Deleted: ${shortOf(names)}`, refused }, onChanged)
    failed(refused, reply)
    onChanged()
  }
  openDialog(
    <Dialog title={`Delete ${shortOf(names)}?`}>
      <p>This cannot be undone. Folders are deleted with all that is in them.</p>
      <ul class="doomed">
        {entries.slice(0, MOST).map((entry) => (
          <li key={entry.name}>
            <bdi class="doomed-name">{legible(entry.name)}</bdi>
            <span class="muted">{entry.type}</span>
          </li>
        ))}
        {entries.length > MOST && <li>{`and ${counted(entries.length - MOST, "other")}`}</li>}
      </ul>
      {dialogActions({ text: "Delete", class: "danger", onClick: () => void remove() })}
    </Dialog>
  )
}

const ModeDialog = (props: { readonly place: Place; readonly entries: ReadonlyArray<FileEntry> }): View => {
  const { id, onChanged, path } = props.place
  const { inputs, texts } = useForm({ mode: props.entries[0]?.mode ?? "" })
  const names = props.entries.map((entry) => entry.name)
  return (
    <FormDialog
      title={`Permissions of ${shortOf(names)}`}
      button="Set"
      onSubmit={() =>
        changeFiles(id, "mode", { paths: names.map((one) => pathIn(path, one)), mode: texts.mode ?? "" })
      }
      onDone={(body) =>
        void tellChange(
          body,
          { fine: `Permissions set: ${shortOf(names)}`, refused: `Permissions not set: ${shortOf(names)}` },
          onChanged
        )
      }
    >
      {inputs([field("text", "mode", "Mode", "Octal digits, such as 0644 for files or 0755 for programs.")])}
    </FormDialog>
  )
}

export const askMode = (place: Place, entries: ReadonlyArray<FileEntry>): void =>
  openDialog(<ModeDialog place={place} entries={entries} />)
