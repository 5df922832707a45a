import { h } from "preact"
import { useEffect } from "preact/hooks"
import { isAdmin, whyNot } from "../../api/session.ts"
import type { Server } from "../../api/types.ts"
import { a, classes, code, dd, div, dl, dt, h1, h2, p, section, span, type View } from "../../dom/el.ts"
import { dateTime, mebibytes } from "../../dom/format.ts"
import { withActions } from "../../dom/routeActions.ts"
import { AuditList } from "../../parts/AuditList.ts"
import { Crashes } from "../../parts/Crashes.ts"
import { notSaved } from "../../parts/endings.ts"
import { eventList } from "../../parts/eventList.ts"
import { action, copyable, empty, status, tabList } from "../../parts/parts.ts"
import { act, power } from "../../state/actions.ts"
import { feed } from "../../state/feed.ts"
import { listAddress } from "../../state/filter.ts"
import { addressOf, follow, go, showTitle } from "../../state/router.ts"
import { crashOf, labelText, problemText } from "../../state/rows.ts"
import { Changes } from "./Changes.ts"
import { Console } from "./Console.ts"
import { type Tab, tabs, useDetail } from "./detail.ts"
import { Installation } from "./Installation.ts"
import { Plots } from "./Plots.ts"
import { PowerButtons } from "./PowerButtons.ts"
import { showUpgrade } from "./upgrade.ts"

const names: Readonly<Record<Tab, string>> = {
  console: "Console",
  changes: "Changes",
  installation: "Installation",
  crashes: "Crashes",
  events: "Events"
}

const addressText = ({ alias, default: main }: Server["allocations"]): string =>
  `${alias === "" ? main.ip : alias}:${main.port}`

const fact = (name: string, value: string | View | ReadonlyArray<View | string>): View =>
  div({ key: name }, dt({}, name), dd({}, value))

const Facts = ({ server }: { readonly server: Server }): View => {
  const { allocations, labels = {}, limits, ports = {} } = server
  return dl(
    { class: "facts" },
    fact("Address", copyable(addressText(allocations))),
    Object.keys(ports).length > 1 &&
      fact(
        "Ports",
        Object.entries(ports).map(([name, { port }]) =>
          span({ class: "label", key: name }, `${name} ${port}`)
        )
      ),
    fact("Blueprint", server.blueprint_id),
    fact("Software", `${server.software ?? ""} ${server.version ?? ""}`),
    fact("Node", a({ href: addressOf.nodes, onClick: follow }, server.node_name)),
    fact("Memory", mebibytes(limits?.memory_limit ?? 0)),
    fact(
      "CPU",
      limits?.cpu_limit === undefined || limits.cpu_limit === 0 ? "no limit" : `${limits.cpu_limit}%`
    ),
    server.run !== undefined && fact("After a restart of its node", runText(server.run)),
    fact("Id", copyable(server.id)),
    fact("Created", server.created_at === undefined ? "–" : dateTime(server.created_at)),
    server.expires_at !== null &&
      server.expires_at !== undefined &&
      fact("Expires", dateTime(server.expires_at)),
    Object.keys(labels).length > 0 &&
      fact(
        "Labels",
        Object.entries(labels).map(([name, value]) =>
          span({ class: "label", key: name, title: labelText(name, value) }, labelText(name, value))
        )
      )
  )
}

/** Returns what becomes of a server when its node is back, and who has stopped it. */
const runText = ({ run, stopped_by, waiting }: NonNullable<Server["run"]>): string => {
  if (waiting !== undefined) return `starts as number ${waiting}`
  if (run === "manual") return "stays as it is"
  const rule = run === "always" ? "starts always" : "starts if it was up"
  return stopped_by === undefined ? rule : `stays offline: stopped by ${stopped_by}`
}

/** The problems of the server, each with the next step. */
const Attention = ({ server }: { readonly server: Server }): View | null => {
  const { definition, install, pending = [], problem, restart, status: state } = server
  const crashed = state === "offline" ? crashOf(server) : undefined
  const items: ReadonlyArray<View | false> = [
    install?.phase === "failed" &&
      div(
        { class: "attention is-failed", key: "install" },
        span({}, `The installation failed: ${withActions(install.failure_reason ?? "no reason is known")}`),
        a({ href: addressOf.server(server.id, "installation"), onClick: follow }, "Show its output"),
        action({
          text: "Reinstall",
          class: "link",
          whyNot: whyNot("change"),
          onClick: () => void act(server.id, "reinstall", "Reinstallation requested", {})
        })
      ),
    problem !== null &&
      problem !== undefined &&
      div(
        { class: "attention is-failed", key: "problem" },
        span({}, `It ${problemText(problem)}`),
        action({
          text: "Start again",
          class: "link",
          whyNot: whyNot("start"),
          onClick: () => void power(server.id, "start")
        })
      ),
    crashed !== undefined &&
      div(
        // Without a restart, it is not known whether the server has run since.
        { class: classes("attention", Boolean(restart) && "is-failed"), key: "crash" },
        span(
          {},
          `Last crash ${dateTime(crashed.crashed_at)}: ${crashed.reason}`,
          restart !== null &&
            restart !== undefined &&
            "next_at" in restart &&
            ` It starts again ${dateTime(restart.next_at)}.`,
          restart !== null &&
            restart !== undefined &&
            "given_up" in restart &&
            ` It does not start again: ${restart.reason}.`
        ),
        a({ href: addressOf.server(server.id, "crashes"), onClick: follow }, "Show its last lines")
      ),
    pending.length > 0 &&
      div(
        { class: "attention", key: "pending" },
        span(
          {},
          "The next start changes ",
          pending.map((path) => code({ key: path }, path, " "))
        ),
        action({
          text: "Restart now",
          class: "link",
          whyNot: whyNot("restart"),
          onClick: () => void power(server.id, "restart")
        })
      ),
    definition?.outdated === true &&
      div(
        { class: "attention", key: "outdated" },
        span({}, "The blueprint has changed since this server got its definition."),
        action({
          text: "Review the upgrade",
          class: "link",
          whyNot: whyNot("change"),
          onClick: () => showUpgrade(server.id)
        })
      )
  ]
  return items.some((item) => item !== false) ? div({ class: "attentions" }, items) : null
}

const panelOf = (tab: Tab, server: Server, readings: number, reload: () => void): View => {
  switch (tab) {
    case "console":
      return h(Console, { id: server.id, status: server.status ?? "unknown" })
    case "changes":
      return h(Changes, { server, onChanged: reload })
    case "installation":
      return h(Installation, { id: server.id, readings })
    case "crashes":
      return h(Crashes, { id: server.id, again: readings, last: server.last_crash ?? undefined })
    case "events": {
      const its = feed.value.filter(({ event }) => event.Data.server_id === server.id)
      return its.length === 0
        ? empty("events", "No event yet", "This tab has seen no event of the server.")
        : eventList(its)
    }
  }
}

/** The traces of a deleted server: its crashes, and the requests that changed it. */
const Remains = ({ id }: { readonly id: string }): View =>
  div(
    { class: "remains" },
    h2({}, "Crashes"),
    h(Crashes, { id, again: 0 }),
    isAdmin() && [h2({ key: "title" }, "Audit log"), h(AuditList, { key: "list", object: id })]
  )

/** The page of one server. */
export const ServerPage = ({ id, tab }: { readonly id: string; readonly tab: string }): View => {
  const { failure, readings, reload, server } = useDetail(id)
  const shown =
    tabs.find((one) => one === tab) ??
    (server === undefined || (server.install?.phase ?? "ready") === "ready" ? "console" : "installation")
  const title = server?.name ?? server?.id ?? id
  useEffect(() => showTitle(title), [title])
  if (server === undefined) {
    return failure === undefined
      ? div({ class: "loading", "aria-busy": "true" }, p({ class: "muted" }, "Loading the server"))
      : div(
          { class: "server-page" },
          empty(
            "servers",
            failure.code === 404 ? "This server does not exist" : "The server cannot be shown",
            failure.detail,
            action({ text: "Show all servers", onClick: () => go(listAddress()) })
          ),
          failure.code === 404 && h(Remains, { id })
        )
  }
  return div(
    { class: "server-page" },
    div(
      { class: "page-head server-head" },
      a(
        {
          class: "back",
          href: listAddress(),
          onClick: follow,
          "aria-label": "Back to the list of servers"
        },
        "Servers"
      ),
      span({ class: "crumb", "aria-hidden": "true" }, "/"),
      h1({}, title),
      status(server.status ?? "unknown"),
      server.save === false && notSaved(),
      span({ class: "grow" }),
      h(PowerButtons, { server })
    ),
    h(Attention, { server }),
    div(
      { class: "server-columns" },
      section(
        { class: "server-main", "aria-label": "Details" },
        tabList(
          "Parts of the server",
          tabs.map((one) => ({
            text: names[one],
            address: addressOf.server(server.id, one),
            isShown: one === shown
          }))
        ),
        panelOf(shown, server, readings, reload)
      ),
      section(
        { class: "server-side", "aria-label": "Figures" },
        h(Plots, {
          key: server.id,
          id: server.id,
          isUp: !["offline", "installing", "unknown"].includes(server.status ?? "")
        }),
        div({ class: "card side-card" }, h(Facts, { server }))
      )
    )
  )
}
