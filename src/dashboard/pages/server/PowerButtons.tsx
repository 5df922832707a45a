import { useState } from "preact/hooks"
import { post, segment, useReply } from "../../api/http.ts"
import { whyNoPower, whyNot } from "../../api/session.ts"
import type { DefinitionChange, Power, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import type { IconName } from "../../dom/icons.tsx"
import { askBeforeEnd, closeDialog, confirm, Dialog, dialogActions, openDialog } from "../../parts/Dialog.tsx"
import { definitionChanges } from "../../parts/differences.tsx"
import { checkField } from "../../parts/form.tsx"
import { Menu, type MenuItem } from "../../parts/Menu.tsx"
import { action, drawReply } from "../../parts/parts.tsx"
import { act, power, remove } from "../../state/actions.ts"
import { listAddress } from "../../state/filter.ts"
import { addressOf, go } from "../../state/router.ts"
import { titleOf } from "../../state/rows.ts"
import { showSchedule } from "../schedules/scheduleDialog.tsx"
import { KeptFor } from "../servers/DeletedPage.tsx"

interface Choice {
  readonly action: Power
  readonly text: string
  readonly icon: IconName
  readonly class?: string
}

const start: Choice = { action: "start", text: "Start", icon: "play", class: "primary" }
const stop: Choice = { action: "stop", text: "Stop", icon: "stop" }
const restart: Choice = { action: "restart", text: "Restart", icon: "restart" }
const kill: Choice = { action: "kill", text: "Kill", icon: "close", class: "danger" }
const unpause: Choice = { action: "unpause", text: "Continue", icon: "play", class: "primary" }

const choicesOf = ({ install, restart: again, run, status }: Server): ReadonlyArray<Choice> => {
  switch (status) {
    case "running":
      return [restart, stop]
    case "starting":
      return [stop, kill]
    case "stopping":
      return [kill]
    case "paused":
      return [unpause, stop]
    case "installing":
      return [{ ...start, text: "Start when installed", class: "" }]
    case "offline":
      if (install?.phase === "failed") return []
      if (run?.waiting !== undefined) return [start, { ...stop, text: "Cancel the start" }]
      return again !== null && again !== undefined && "next_at" in again
        ? [start, { ...stop, text: "Cancel the restart" }]
        : [start]
    default:
      return []
  }
}

interface Upgrade {
  readonly changes: ReadonlyArray<DefinitionChange>
  readonly revision: string
}

const UpgradeDialog = ({ id }: { readonly id: string }): View => {
  const plan = useReply(() => post<Upgrade>(`/api/servers/${segment(id)}/upgrade`, { dry_run: true }), [id])
  const changes = plan?.ok === true ? plan.body.changes : []
  return (
    <Dialog title="Upgrade to today’s blueprint" class="is-wide">
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
        <div class="dialog-actions">{action({ text: "Close", onClick: closeDialog })}</div>
      ) : (
        dialogActions({
          text: `Upgrade with ${counted(changes.length, "change")}`,
          class: "primary",
          onClick: () => void act(id, "upgrade", "Upgrade requested", {})
        })
      )}
    </Dialog>
  )
}

export const showUpgrade = (id: string): void => openDialog(<UpgradeDialog id={id} />)

const ConfirmDeletion = ({ server }: { readonly server: Server }): View => {
  const [isForced, setForced] = useState(false)
  const name = titleOf(server)
  const isUp = server.status !== "offline" && server.status !== "installing"
  return (
    <Dialog title={`Delete ${name}?`}>
      <p>
        {"This deletes the server "}
        <strong>{name}</strong>
        {" ("}
        <code>{server.id}</code>
        {") and frees its address "}
        <code>{`${server.allocations.default.ip}:${server.allocations.default.port}`}</code>.
      </p>
      <KeptFor />
      {isUp && <p class="problem">{`The server is ${server.status}; its players lose their connection.`}</p>}
      {checkField("Also if its node cannot be reached", isForced, () => setForced(!isForced))}
      {dialogActions(
        {
          text: `Delete ${name}`,
          class: "danger",
          onClick: () =>
            void remove(server.id, isForced).then((ok) => {
              if (ok) go(listAddress())
            })
        },
        "Keep it"
      )}
    </Dialog>
  )
}

const itemsOf = (server: Server): ReadonlyArray<MenuItem> => {
  const { id, status } = server
  const name = titleOf(server)
  const ready = ["running", "starting", "stopping", "paused"].includes(status ?? "")
  const asked = (verb: string, why: string | undefined, text: string, run: () => unknown): MenuItem => ({
    text: `${verb}…`,
    whyNot: why,
    onChoose: () => confirm(`${verb} ${name}?`, text, `${verb} ${name}`, () => void run())
  })
  return [
    {
      text: "Schedule…",
      whyNot: whyNot("schedules"),
      onChoose: () => showSchedule(() => go(addressOf.schedules()), undefined, id)
    },
    { text: "Upgrade to today’s blueprint…", whyNot: whyNot("change"), onChoose: () => showUpgrade(id) },
    {
      text: "Pause",
      whyNot: whyNot("pause") ?? (status === "running" ? undefined : "Only a running server can be paused."),
      onChoose: () => void power(id, "pause")
    },
    asked(
      "Kill",
      whyNot("kill") ?? (ready ? undefined : "No process runs."),
      server.save === false
        ? "The process ends at once, and the server is deleted with its files: it is not saved."
        : "The process ends at once. What it has not saved is lost.",
      () => power(id, "kill")
    ),
    asked(
      "Reinstall",
      whyNot("change"),
      "The install script runs again with today’s blueprint. The files that a saved server has written stay.",
      () => act(id, "reinstall", "Reinstallation requested", {})
    ),
    {
      ...asked(
        "Reset",
        whyNot("change"),
        "The server stops, and all that it has written is deleted, its world too. The files of its blueprint are restored. This cannot be undone.",
        () => act(id, "reset", "Reset requested")
      ),
      isDangerous: true
    },
    {
      text: "Delete…",
      isDangerous: true,
      whyNot: whyNot("delete"),
      onChoose: () => openDialog(<ConfirmDeletion server={server} />)
    }
  ]
}

export const PowerButtons = ({ server }: { readonly server: Server }): View => {
  const [busy, setBusy] = useState<Power | undefined>(undefined)
  const run = async (wanted: Power) => {
    setBusy(wanted)
    await power(server.id, wanted)
    setBusy(undefined)
  }
  return (
    <div class="power">
      {choicesOf(server).map((choice) =>
        action({
          text: choice.text,
          icon: choice.icon,
          class: choice.class ?? "",
          whyNot: whyNoPower(choice.action),
          isBusy: busy === choice.action,
          onClick: () => askBeforeEnd([server.id], choice.action, () => void run(choice.action))
        })
      )}
      <Menu label="More actions" items={itemsOf(server)} />
    </div>
  )
}
