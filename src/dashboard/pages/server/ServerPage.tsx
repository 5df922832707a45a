import type { ComponentChildren } from "preact"
import { useEffect } from "preact/hooks"
import { type Reply, segment, useGet, useTick } from "../../api/http.ts"
import { isAdmin, whyNot } from "../../api/session.ts"
import type { Right, Server } from "../../api/types.ts"
import { classes, type View } from "../../dom/el.ts"
import { dateTime, labelTexts, mebibytes } from "../../dom/format.ts"
import { AuditList, Crashes, eventList } from "../../parts/eventList.tsx"
import {
  action,
  backToList,
  copyable,
  empty,
  fact,
  label,
  notSaved,
  status,
  tabList
} from "../../parts/parts.tsx"
import { act, power } from "../../state/actions.ts"
import { listAddress } from "../../state/filter.ts"
import { feed, onEvent } from "../../state/live.ts"
import { addressOf, follow, go, type Place, showTitle } from "../../state/router.ts"
import { addressText, crashOf, failureText, problemText, rowOf, titleOf } from "../../state/rows.ts"
import { changed, put, rows } from "../../state/servers.ts"
import { BackupList } from "../backups/BackupList.tsx"
import { Files } from "../files/Files.tsx"
import { DeletedNote } from "../servers/DeletedPage.tsx"
import { Changes } from "./Changes.tsx"
import { Console } from "./Console.tsx"
import { Installation } from "./Installation.tsx"
import { Plots } from "./Plots.tsx"
import { PowerButtons, showUpgrade } from "./PowerButtons.tsx"

const FIELDS =
  "status,limits,software,labels,name,install,last_crash,ports,expires_at,updated_at,restart,run,definition,problem,save"

/** Milliseconds in which the events of a server gather. */
const GATHER = 120

/** Milliseconds between two readings without an event: settings that other callers change have none. */
const EVERY = 15_000

interface Detail {
  /** The last reading; it is another object after each. */
  readonly reading: Reply<Server> | undefined
  readonly reload: () => void
}

/** One server as its page shows it: read again after each of its events. */
const useDetail = (id: string): Detail => {
  const [tick, reload] = useTick(EVERY)
  const reading = useGet<Server>(`/api/servers/${segment(id)}?include=${FIELDS}`, tick)
  useEffect(() => {
    if (reading?.ok !== true) return
    put(rowOf(reading.body, rows.get(id)))
    changed()
  }, [reading])
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const ended = onEvent(({ Data }) => {
      if (Data.server_id !== id) return
      timer ??= setTimeout(() => {
        timer = undefined
        reload()
      }, GATHER)
    })
    return () => {
      clearTimeout(timer)
      ended()
    }
  }, [id])
  return { reading, reload }
}

const allTabs = ["console", "files", "backups", "changes", "installation", "crashes", "events"] as const
type Tab = (typeof allTabs)[number]

/** The rights that a key needs for a tab. */
const rights: Partial<Record<Tab, Right>> = { files: "browse", backups: "backups" }

const tabsOfKey = (): ReadonlyArray<Tab> =>
  allTabs.filter((tab) => {
    const right = rights[tab]
    return right === undefined || whyNot(right) === undefined
  })

const names: Readonly<Record<Tab, string>> = {
  console: "Console",
  files: "Files",
  backups: "Backups",
  changes: "Changes",
  installation: "Installation",
  crashes: "Crashes",
  events: "Events"
}

const Facts = ({ server }: { readonly server: Server }): View => {
  const { labels = {}, limits, ports = {} } = server
  return (
    <dl class="facts">
      {fact("Address", copyable(addressText(server)))}
      {Object.keys(ports).length > 1 &&
        fact(
          "Ports",
          Object.entries(ports).map(([name, { port }]) => label(`${name} ${port}`))
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
      {Object.keys(labels).length > 0 && fact("Labels", labelTexts(labels).map(label))}
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

const attention = (
  key: string,
  isFailed: boolean,
  text: ComponentChildren,
  next: ComponentChildren
): View => (
  <div key={key} class={classes("attention", isFailed && "is-failed")}>
    <span>{text}</span>
    {next}
  </div>
)

const step = (text: string, right: Right, onClick: () => void): View =>
  action({ text, class: "link", whyNot: whyNot(right), onClick })

const tabLink = (text: string, { id }: Server, tab: Tab): View => (
  <a href={addressOf.server(id, tab)} onClick={follow}>
    {text}
  </a>
)

const restartText = (restart: Server["restart"]): string => {
  if (restart === null || restart === undefined) return ""
  return "next_at" in restart
    ? ` It starts again ${dateTime(restart.next_at)}.`
    : ` It does not start again: ${restart.reason}.`
}

const Attention = ({ server }: { readonly server: Server }): View | null => {
  const { definition, id, install, pending = [], problem, restart, status: state } = server
  const crashed = state === "offline" ? crashOf(server) : undefined
  const items: ReadonlyArray<View | false> = [
    install?.phase === "failed" &&
      attention("install", true, `The installation failed: ${failureText(server)}`, [
        tabLink("Show its output", server, "installation"),
        step("Reinstall", "change", () => void act(id, "reinstall", "Reinstallation requested", {}))
      ]),
    problem !== null &&
      problem !== undefined &&
      attention(
        "problem",
        true,
        `It ${problemText(problem)}`,
        step("Start again", "start", () => void power(id, "start"))
      ),
    crashed !== undefined &&
      attention(
        "crash",
        Boolean(restart),
        `Last crash ${dateTime(crashed.crashed_at)}: ${crashed.reason}${restartText(restart)}`,
        tabLink("Show its last lines", server, "crashes")
      ),
    pending.length > 0 &&
      attention(
        "pending",
        false,
        ["The next start changes ", ...pending.map((path) => <code key={path}>{path} </code>)],
        step("Restart now", "restart", () => void power(id, "restart"))
      ),
    definition?.outdated === true &&
      attention(
        "outdated",
        false,
        "The blueprint has changed since this server got its definition.",
        step("Review the upgrade", "change", () => showUpgrade(id))
      )
  ]
  return items.some((item) => item !== false) ? <div class="attentions">{items}</div> : null
}

const panelOf = (tab: Tab, server: Server, place: Place, reload: () => void): View => {
  switch (tab) {
    case "files":
      return <Files id={server.id} path={place.path} line={place.line} />
    case "backups":
      return <BackupList key={server.id} id={server.id} server={server} />
    case "console":
      return <Console id={server.id} status={server.status ?? "unknown"} />
    case "changes":
      return <Changes server={server} onChanged={reload} />
    case "installation":
      return <Installation id={server.id} reading={server} />
    case "crashes":
      return <Crashes id={server.id} again={server} last={server.last_crash ?? undefined} />
    case "events": {
      const its = feed.value.filter(({ event }) => event.Data.server_id === server.id)
      return its.length === 0
        ? empty("events", "No event yet", "This tab has seen no event of the server.")
        : eventList(its)
    }
  }
}

/** The traces of a deleted server: its backups, its crashes, and the requests that changed it. */
const Remains = ({ id }: { readonly id: string }): View => (
  <div class="stack remains">
    {whyNot("backups") === undefined && [
      <h2 key="backups">Backups</h2>,
      <BackupList key="backup-list" id={id} />
    ]}
    <h2>Crashes</h2>
    <Crashes id={id} again={0} />
    {isAdmin() && [<h2 key="title">Audit log</h2>, <AuditList key="list" object={id} />]}
  </div>
)

export const ServerPage = (props: { readonly id: string } & Place): View => {
  const { id, tab } = props
  const tabs = tabsOfKey()
  const { reading, reload } = useDetail(id)
  const server = reading?.ok === true ? reading.body : undefined
  const shown =
    tabs.find((one) => one === tab) ??
    (server === undefined || (server.install?.phase ?? "ready") === "ready" ? "console" : "installation")
  const title = titleOf(server ?? { id })
  useEffect(() => showTitle(title), [title])
  if (reading === undefined) {
    return (
      <div class="loading" aria-busy="true">
        <p class="muted">Loading the server</p>
      </div>
    )
  }
  if (!reading.ok || server === undefined) {
    const isGone = reading.code === 404
    return (
      <div class="server-page">
        {empty(
          "servers",
          isGone ? "This server does not exist" : "The server cannot be shown",
          reading.ok ? "" : reading.detail,
          action({ text: "Show all servers", onClick: () => go(listAddress()) }),
          isGone && <DeletedNote />
        )}
        {isGone && <Remains id={id} />}
      </div>
    )
  }
  return (
    <div class="server-page">
      <div class="across page-head server-head">
        {backToList()}
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
          {panelOf(shown, server, props, reload)}
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
