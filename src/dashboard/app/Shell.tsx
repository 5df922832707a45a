import { useSignalEffect } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { allowedTo, caller, signOut, whyNot } from "../api/session.ts"
import { classes, type View } from "../dom/el.ts"
import { type IconName, icon, logo } from "../dom/icons.tsx"
import { Dialogs } from "../parts/Dialog.tsx"
import { Menu } from "../parts/Menu.tsx"
import { listAddress } from "../state/filter.ts"
import { clearFeed, connect, connection, disconnect, reconnect } from "../state/live.ts"
import { announce, announcement, closeNotice, notices } from "../state/notices.ts"
import { addressOf, follow, route } from "../state/router.ts"
import { theme, toggleTheme } from "../state/theme.ts"
import { OperationTray } from "./OperationTray.tsx"
import { showShortcuts } from "./shortcuts.tsx"

const words = { loading: "Loading", live: "Live", reconnecting: "Reconnecting", ended: "Ended" } as const

const ConnectionState = (): View => {
  const { detail, state } = connection.value
  return (
    <button
      type="button"
      class={classes("connection", `is-${state}`)}
      title={detail}
      aria-label={`Connection: ${words[state]}. ${detail}`}
      onClick={state === "ended" ? connect : reconnect}
    >
      <span class="dot" aria-hidden="true" />
      <span class="connection-text">{words[state]}</span>
    </button>
  )
}

const pages: ReadonlyArray<readonly [string, () => string, IconName, ReadonlyArray<string>]> = [
  ["Servers", listAddress, "servers", ["servers", "server", "deleted", "new"]],
  ["Nodes", () => addressOf.nodes, "node", ["nodes"]],
  ["Rollouts", () => addressOf.rollouts, "layers", ["rollouts"]],
  ["Schedules", () => addressOf.schedules(), "clock", ["schedules"]],
  ["Backups", () => addressOf.backups, "archive", ["backups"]],
  ["Events", () => addressOf.events(), "events", ["events"]],
  ["Admin", () => addressOf.keys, "gear", ["keys", "quotas", "webhooks", "targets", "settings"]]
]

const Bar = (): View => {
  const known = caller.value
  return (
    <header class="across top">
      <a class="across brand" href={listAddress()} onClick={follow} aria-label="Muster, servers">
        {logo()}
        <span>Muster</span>
      </a>
      <nav aria-label="Pages">
        {pages
          .filter(([text]) => text !== "Backups" || whyNot("backups") === undefined)
          .map(([text, href, name, shown]) => (
            <a
              href={href()}
              onClick={follow}
              aria-current={shown.includes(route.value.page) ? "page" : undefined}
            >
              {icon(name)}
              <span>{text}</span>
            </a>
          ))}
      </nav>
      <div class="grow" />
      <OperationTray />
      <ConnectionState />
      <button
        type="button"
        class="ghost square"
        aria-label={theme.value === "dark" ? "Use the light theme" : "Use the dark theme"}
        title="Theme"
        onClick={toggleTheme}
      >
        {icon(theme.value === "dark" ? "sun" : "moon")}
      </button>
      <Menu
        label={`Key ${known === undefined ? "" : allowedTo(known)}`}
        class="ghost key-button"
        items={[
          { text: "Keyboard shortcuts", onChoose: showShortcuts },
          { text: "API reference", onChoose: () => void location.assign("/docs") },
          {
            text: "Sign out",
            onChoose: () => {
              disconnect()
              clearFeed()
              signOut()
            }
          }
        ]}
        children={[
          icon("key"),
          <span class="unseen">{"Key "}</span>,
          <span class="key-name">{known?.name ?? ""}</span>,
          <span class="tag">{known?.scope ?? ""}</span>
        ]}
      />
    </header>
  )
}

const Notices = (): View => (
  <div class="notices">
    {notices.value.map(({ detail, id, kind, text }) => (
      <div key={id} class={`notice is-${kind}`} role={kind === "failed" ? "alert" : "status"}>
        {icon(kind === "failed" ? "crash" : "check")}
        <div class="notice-text">
          <span>{text}</span>
          {detail !== "" && <p>{detail}</p>}
        </div>
        <button
          class="ghost square"
          type="button"
          aria-label="Close the message"
          onClick={() => closeNotice(id)}
        >
          {icon("close")}
        </button>
      </div>
    ))}
  </div>
)

const Announcer = (): View => (
  <div class="unseen" role="status" aria-live="polite">
    {announcement.value}
  </div>
)

export const Shell = ({ children }: { readonly children?: ComponentChildren }): View => {
  useSignalEffect(() => {
    const { detail, state } = connection.value
    announce(state === "live" ? `Connected. ${detail}` : `${words[state]}. ${detail}`)
  })
  const { detail, state } = connection.value
  return (
    <div class="shell">
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <Bar />
      {(state === "ended" || state === "reconnecting") && (
        <div class={classes("banner", `is-${state}`)} role="status">
          <span>
            {state === "ended"
              ? `The stream of changes has ended: ${detail}`
              : `Connection lost. ${detail}. The page shows the last known state.`}
          </span>
          <button type="button" onClick={state === "ended" ? connect : reconnect}>
            Try now
          </button>
        </div>
      )}
      <main id="content" class={`page is-${route.value.page}`} tabIndex={-1}>
        {children}
      </main>
      <Notices />
      <Announcer />
      <Dialogs />
    </div>
  )
}
