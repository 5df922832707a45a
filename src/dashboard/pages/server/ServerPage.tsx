import { useEffect } from "preact/hooks"
import { isAdmin, whyNot } from "../../api/session.ts"
import type { Server } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { dateTime, mebibytes } from "../../dom/format.ts"
import { withActions } from "../../dom/routeActions.ts"
import { AuditList } from "../../parts/AuditList.tsx"
import { Crashes } from "../../parts/Crashes.tsx"
import { notSaved } from "../../parts/endings.tsx"
import { eventList } from "../../parts/eventList.tsx"
import { action, copyable, empty, fact, status, tabList } from "../../parts/parts.tsx"
import { act, power } from "../../state/actions.ts"
import { feed } from "../../state/feed.ts"
import { listAddress } from "../../state/filter.ts"
import { addressOf, follow, go, showTitle } from "../../state/router.ts"
import { crashOf, labelText, problemText } from "../../state/rows.ts"
import { Changes } from "./Changes.tsx"
import { Console } from "./Console.tsx"
import { type Tab, tabs, useDetail } from "./detail.ts"
import { Installation } from "./Installation.tsx"
import { Plots } from "./Plots.tsx"
import { PowerButtons } from "./PowerButtons.tsx"
import { showUpgrade } from "./upgrade.tsx"

const names: Readonly<Record<Tab, string>> = {
  console: "Console",
  changes: "Changes",
  installation: "Installation",
  crashes: "Crashes",
  events: "Events"
}

const addressText = ({ alias, default: main }: Server["allocations"]): string =>
  `${alias === "" ? main.ip : alias}:${main.port}`

const Facts = ({ server }: { readonly server: Server }): View => {
  const { allocations, labels = {}, limits, ports = {} } = server
  return (
    <dl class="facts">
      {fact("Address", copyable(addressText(allocations)))}
      {Object.keys(ports).length > 1 &&
        fact(
          "Ports",
          Object.entries(ports).map(([name, { port }]) => (
            <span key={name} class="label">{`${name} ${port}`}</span>
          ))
        )}
      {fact("Blueprint", server.blueprint_id)}
      {fact("Software", `${server.software ?? ""} ${server.version ?? ""}`)}
      {fact(
        "Node",
        <a href={addressOf.nodes} onClick={follow}>
          {server.node_name}
        </a>
      )}
      {fact("Memory", mebibytes(limits?.memory_limit ?? 0))}
      {fact(
        "CPU",
        limits?.cpu_limit === undefined || limits.cpu_limit === 0 ? "no limit" : `${limits.cpu_limit}%`
      )}
      {server.run !== undefined && fact("After a restart of its node", runText(server.run))}
      {fact("Id", copyable(server.id))}
      {fact("Created", server.created_at === undefined ? "–" : dateTime(server.created_at))}
      {server.expires_at !== null &&
        server.expires_at !== undefined &&
        fact("Expires", dateTime(server.expires_at))}
      {Object.keys(labels).length > 0 &&
        fact(
          "Labels",
          Object.entries(labels).map(([name, value]) => (
            <span key={name} class="label" title={labelText(name, value)}>
              {labelText(name, value)}
            </span>
          ))
        )}
    </dl>
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
    install?.phase === "failed" && (
      <div key="install" class="attention is-failed">
        <span>{`The installation failed: ${withActions(install.failure_reason ?? "no reason is known")}`}</span>
        <a href={addressOf.server(server.id, "installation")} onClick={follow}>
          Show its output
        </a>
        {action({
          text: "Reinstall",
          class: "link",
          whyNot: whyNot("change"),
          onClick: () => void act(server.id, "reinstall", "Reinstallation requested", {})
        })}
      </div>
    ),
    problem !== null && problem !== undefined && (
      <div key="problem" class="attention is-failed">
        <span>{`It ${problemText(problem)}`}</span>
        {action({
          text: "Start again",
          class: "link",
          whyNot: whyNot("start"),
          onClick: () => void power(server.id, "start")
        })}
      </div>
    ),
    crashed !== undefined && (
      <div key="crash" class={classes("attention", Boolean(restart) && "is-failed")}>
        <span>
          {`Last crash ${dateTime(crashed.crashed_at)}: ${crashed.reason}`}
          {restart !== null &&
            restart !== undefined &&
            "next_at" in restart &&
            ` It starts again ${dateTime(restart.next_at)}.`}
          {restart !== null &&
            restart !== undefined &&
            "given_up" in restart &&
            ` It does not start again: ${restart.reason}.`}
        </span>
        <a href={addressOf.server(server.id, "crashes")} onClick={follow}>
          Show its last lines
        </a>
      </div>
    ),
    pending.length > 0 && (
      <div key="pending" class="attention">
        <span>
          {"The next start changes "}
          {pending.map((path) => (
            <code key={path}>{path} </code>
          ))}
        </span>
        {action({
          text: "Restart now",
          class: "link",
          whyNot: whyNot("restart"),
          onClick: () => void power(server.id, "restart")
        })}
      </div>
    ),
    definition?.outdated === true && (
      <div key="outdated" class="attention">
        <span>The blueprint has changed since this server got its definition.</span>
        {action({
          text: "Review the upgrade",
          class: "link",
          whyNot: whyNot("change"),
          onClick: () => showUpgrade(server.id)
        })}
      </div>
    )
  ]
  return items.some((item) => item !== false) ? <div class="attentions">{items}</div> : null
}

const panelOf = (tab: Tab, server: Server, readings: number, reload: () => void): View => {
  switch (tab) {
    case "console":
      return <Console id={server.id} status={server.status ?? "unknown"} />
    case "changes":
      return <Changes server={server} onChanged={reload} />
    case "installation":
      return <Installation id={server.id} readings={readings} />
    case "crashes":
      return <Crashes id={server.id} again={readings} last={server.last_crash ?? undefined} />
    case "events": {
      const its = feed.value.filter(({ event }) => event.Data.server_id === server.id)
      return its.length === 0
        ? empty("events", "No event yet", "This tab has seen no event of the server.")
        : eventList(its)
    }
  }
}

/** The traces of a deleted server: its crashes, and the requests that changed it. */
const Remains = ({ id }: { readonly id: string }): View => (
  <div class="stack remains">
    <h2>Crashes</h2>
    <Crashes id={id} again={0} />
    {isAdmin() && [<h2 key="title">Audit log</h2>, <AuditList key="list" object={id} />]}
  </div>
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
    return failure === undefined ? (
      <div class="loading" aria-busy="true">
        <p class="muted">Loading the server</p>
      </div>
    ) : (
      <div class="server-page">
        {empty(
          "servers",
          failure.code === 404 ? "This server does not exist" : "The server cannot be shown",
          failure.detail,
          action({ text: "Show all servers", onClick: () => go(listAddress()) })
        )}
        {failure.code === 404 && <Remains id={id} />}
      </div>
    )
  }
  return (
    <div class="server-page">
      <div class="across page-head server-head">
        <a class="back" href={listAddress()} onClick={follow} aria-label="Back to the list of servers">
          Servers
        </a>
        <span class="crumb" aria-hidden="true">
          /
        </span>
        <h1>{title}</h1>
        {status(server.status ?? "unknown")}
        {server.save === false && notSaved()}
        <span class="grow" />
        <PowerButtons server={server} />
      </div>
      <Attention server={server} />
      <div class="server-columns">
        <section class="server-main" aria-label="Details">
          {tabList(
            "Parts of the server",
            tabs.map((one) => ({
              text: names[one],
              address: addressOf.server(server.id, one),
              isShown: one === shown
            }))
          )}
          {panelOf(shown, server, readings, reload)}
        </section>
        <section class="server-side" aria-label="Figures">
          <Plots
            key={server.id}
            id={server.id}
            isUp={!["offline", "installing", "unknown"].includes(server.status ?? "")}
          />
          <div class="card side-card">
            <Facts server={server} />
          </div>
        </section>
      </div>
    </div>
  )
}
