import { useState } from "preact/hooks"
import { whyNoPower, whyNot } from "../../api/session.ts"
import type { Power, Server } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import type { IconName } from "../../dom/icons.tsx"
import { confirm, Dialog, dialogActions, openDialog } from "../../parts/Dialog.tsx"
import { askBeforeEnd } from "../../parts/endings.tsx"
import { checkField } from "../../parts/fieldInput.tsx"
import { Menu, type MenuItem } from "../../parts/Menu.tsx"
import { action } from "../../parts/parts.tsx"
import { act, power, remove } from "../../state/actions.ts"
import { listAddress } from "../../state/filter.ts"
import { go } from "../../state/router.ts"
import { showUpgrade } from "./upgrade.tsx"

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

const ConfirmDeletion = ({
  onClose,
  server
}: {
  readonly server: Server
  readonly onClose: () => void
}): View => {
  const [isForced, setForced] = useState(false)
  const name = server.name ?? server.id
  const isUp = server.status !== "offline" && server.status !== "installing"
  return (
    <Dialog title={`Delete ${name}?`} onClose={onClose}>
      <p>
        {"This destroys the server "}
        <strong>{name}</strong>
        {" ("}
        <code>{server.id}</code>
        {") with its files, its worlds and its console, and frees its address "}
        <code>{`${server.allocations.default.ip}:${server.allocations.default.port}`}</code>. It cannot be
        undone.
      </p>
      {isUp && <p class="problem">{`The server is ${server.status}; its players lose their connection.`}</p>}
      {checkField("Also if its node cannot be reached", isForced, () => setForced(!isForced))}
      {dialogActions(
        onClose,
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
  const name = server.name ?? id
  const ready = ["running", "starting", "stopping", "paused"].includes(status ?? "")
  const needs = (right: "pause" | "kill", wanted: boolean, text: string) =>
    whyNot(right) ?? (wanted ? undefined : text)
  return [
    { text: "Upgrade to today’s blueprint…", whyNot: whyNot("change"), onChoose: () => showUpgrade(id) },
    {
      text: "Pause",
      whyNot: needs("pause", status === "running", "Only a running server can be paused."),
      onChoose: () => void power(id, "pause")
    },
    {
      text: "Kill…",
      whyNot: needs("kill", ready, "No process runs."),
      onChoose: () =>
        confirm(
          `Kill ${name}?`,
          server.save === false
            ? "The process ends at once, and the server is deleted with its files: it is not saved."
            : "The process ends at once. What it has not saved is lost.",
          "Kill",
          () => void power(id, "kill")
        )
    },
    {
      text: "Reinstall…",
      whyNot: whyNot("change"),
      onChoose: () =>
        confirm(
          `Reinstall ${name}?`,
          "The install script runs again with today’s blueprint. The files that a saved server has written stay.",
          "Reinstall",
          () => void act(id, "reinstall", "Reinstallation requested", {})
        )
    },
    {
      text: "Reset…",
      isDangerous: true,
      whyNot: whyNot("change"),
      onChoose: () =>
        confirm(
          `Reset ${name}?`,
          "The server stops, and all that it has written is deleted, its world too. The files of its blueprint are restored. This cannot be undone.",
          `Reset ${name}`,
          () => void act(id, "reset", "Reset requested")
        )
    },
    {
      text: "Delete…",
      isDangerous: true,
      whyNot: whyNot("delete"),
      onChoose: () => openDialog((onClose) => <ConfirmDeletion server={server} onClose={onClose} />)
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
