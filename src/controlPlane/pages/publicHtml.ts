import { createHash } from "node:crypto"
import { HttpServerResponse } from "effect/http"
import { type NodeDetail, nodeState } from "../../contract/domain/Node.ts"
import { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import { escapeHtml, HTML, page, pageHeaders, policyOf } from "./html.ts"

const publicStyle = `
:root { color-scheme: light dark; --bg: light-dark(#f6f6f3, #131417); --surface: light-dark(#fff, #1a1c20); --ink: light-dark(#1c1d20, #e8e8e6); --muted: light-dark(#62656c, #9ba0a9); --line: light-dark(#e3e3dd, #2a2d33); --accent: light-dark(#2f5bd0, #8aa9ff); --fill: light-dark(#2f5bd0, #4468d8); --green: light-dark(#177a44, #4ec584); --amber: light-dark(#8f5a06, #e3ad4b); --blue: light-dark(#1c66b8, #6ab1f2); --violet: light-dark(#6d45b8, #b497f0); --red: light-dark(#b3261e, #f2857c); --grey: light-dark(#70747c, #8d929b); --track: light-dark(#e7e7e2, #2a2d33); }
body { font: 14.5px/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-variant-numeric: tabular-nums; background: var(--bg); color: var(--ink); max-width: 66rem; margin: 0 auto; padding: 3rem 1.25rem; }
h1 { font-size: 1.55rem; letter-spacing: -.02em; margin: 0; }
h2 { font-size: .95rem; margin: 0 0 .6rem; }
p { margin: .25rem 0 1rem; color: var(--muted); }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .9em; }
nav { display: flex; flex-wrap: wrap; gap: .5rem 1.1rem; align-items: center; margin: 1rem 0 1.75rem; }
.first { background: var(--fill); color: #fff; padding: .35rem .9rem; border-radius: 7px; font-weight: 560; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 1rem; }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem; }
.card .figure { font-size: 1.8rem; margin: 0 0 .35rem; font-weight: 640; letter-spacing: -.02em; line-height: 1.2; color: var(--ink); }
.card p { margin: .2rem 0 0; font-size: .9em; }
ul { list-style: none; margin: 0; padding: 0; }
li { display: flex; gap: .6rem; align-items: baseline; padding: .12rem 0; }
li b { margin-left: auto; font-weight: 600; }
.wide { margin-top: 1rem; }
.warning { color: var(--amber); }
.dot { display: inline-block; flex: none; width: .55em; height: .55em; border-radius: 50%; background: var(--c); border: 2px solid var(--c); box-sizing: border-box; align-self: center; }
.running, .is-connected { --c: var(--green); }
.starting, .stopping, .is-drained { --c: var(--amber); }
.installing { --c: var(--blue); }
.paused { --c: var(--violet); }
.unknown, .is-away { --c: var(--red); }
.offline { --c: var(--grey); }
.offline.dot { background: none; }
table { border-collapse: collapse; width: 100%; background: var(--surface); }
th, td { text-align: left; padding: .55rem .75rem; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { white-space: nowrap; }
th { color: var(--muted); font-weight: 540; font-size: .85em; }
tbody tr:last-child td { border: 0; }
.framed { border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
td:first-child { font-weight: 600; }
td .dot { margin-right: .6em; }
.banner td:last-child > span { display: flex; align-items: baseline; }
svg { vertical-align: middle; margin-right: .6rem; }
.track { fill: var(--track); }
.used { fill: var(--accent); }
@media (min-width: 80rem) {
  body:has(.all) { max-width: 84rem; }
  .all td:nth-child(2), .all td:nth-child(4) { min-width: 10rem; overflow-wrap: anywhere; }
  .all td:nth-child(n+5) { white-space: nowrap; }
}
@media (max-width: 79.99rem) {
  .all { border: 0; border-radius: 0; }
  .all table, .all tbody { display: block; background: none; }
  .all thead { display: none; }
  .all tbody { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
  .all tr { display: block; background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: .7rem 1.1rem; }
  .all td { display: grid; grid-template-columns: 7.5rem minmax(0, 1fr); padding: .15rem 0; border: 0; }
  .all td::before { content: attr(data-name); color: var(--muted); font-weight: 400; }
}
@media (max-width: 26rem) {
  .first { box-sizing: border-box; width: 100%; text-align: center; }
}
`

/** The pages load the icon alone and run nothing; the hash allows their one style. */
const POLICY = policyOf(
  "img-src 'self'",
  `style-src 'sha256-${createHash("sha256").update(publicStyle).digest("base64")}'`
)

/** The response with an HTML page that loads nothing but the icon. */
export const pageResponse = (html: string) =>
  HttpServerResponse.text(html, { contentType: HTML, headers: pageHeaders(POLICY) })

const styled = (title: string, body: string) => page(title, `<style>${publicStyle}</style>`, body)

const nav = `<nav><a class="first" href="/dashboard">Open the dashboard</a><a href="/">Start</a><a href="/nodes">Nodes</a><a href="/docs">API</a></nav>`

export interface Overview {
  /** Since the start of the process, in milliseconds. */
  readonly uptime: number
  readonly nodes: ReadonlyArray<NodeDetail>
  readonly servers: ReadonlyMap<ServerStatus, number>
  readonly definitionWarnings: number
  readonly isDatabaseFull: boolean
}

const SECOND = 1000
const units: ReadonlyArray<readonly [string, number]> = [
  ["d", 86_400 * SECOND],
  ["h", 3600 * SECOND],
  ["min", 60 * SECOND],
  ["s", SECOND]
]

const duration = (milliseconds: number): string => {
  const from = units.findIndex(([, size]) => milliseconds >= size)
  if (from === -1) return "0 s"
  let rest = milliseconds
  const parts = units.slice(from, from + 2).map(([unit, size]) => {
    const whole = Math.floor(rest / size)
    rest -= whole * size
    return `${whole} ${unit}`
  })
  return parts.join(" ")
}

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`

/** Returns what an operator should look at, without names or addresses. */
const warningsOf = ({ definitionWarnings, isDatabaseFull, nodes }: Overview): ReadonlyArray<string> => {
  const away = nodes.filter(({ connected }) => !connected).length
  const unencrypted = nodes.filter((node) => node.unencrypted === true).length
  return [
    ...(isDatabaseFull ? ["The disk of the database is full: writes are refused."] : []),
    ...(away > 0 ? [`${counted(away, "node")} not connected.`] : []),
    ...(unencrypted > 0 ? [`${counted(unencrypted, "node")} called over plain HTTP.`] : []),
    ...(definitionWarnings > 0
      ? [`${counted(definitionWarnings, "warning")} about definitions: GET /api/definitions/warnings.`]
      : [])
  ]
}

const card = (title: string, figure: string, text: string) =>
  `<section class="card"><h2>${title}</h2><p class="figure">${figure}</p><p>${text}</p></section>`

const overviewOf = (overview: Overview): string => {
  const { nodes, servers, uptime } = overview
  const total = [...servers.values()].reduce((sum, count) => sum + count, 0)
  const connected = nodes.filter((node) => node.connected).length
  const warnings = warningsOf(overview)
  const statuses = ServerStatus.literals
    .filter((status) => (servers.get(status) ?? 0) > 0)
    .map(
      (status) => `<li><span class="dot ${status}"></span>${status}<b>${servers.get(status) ?? 0}</b></li>`
    )
  return `<div class="cards">
${card("Uptime", duration(uptime), "of this process")}
${card("Nodes", `${connected}`, `of ${nodes.length} connected`)}
<section class="card"><h2>Servers</h2><p class="figure">${total}</p><ul>${statuses.join("")}</ul></section>
<section class="card"><h2>Warnings</h2><p class="figure">${warnings.length}</p><ul>${
    warnings.length === 0
      ? "<li>None.</li>"
      : warnings.map((text) => `<li class="warning">${text}</li>`).join("")
  }</ul></section>
</div>`
}

/** `GET /`: the banner page with its links (spec 1.10). @param overview absent: the banner alone */
export const bannerPage = (version: string, overview?: Overview): string =>
  styled(
    "Muster",
    `<main>
<h1>Muster</h1>
<p>Control plane for game servers, version <code>${escapeHtml(version)}</code>.</p>
${nav}
${overview === undefined ? "" : overviewOf(overview)}
</main>`
  )

const gibibytes = (bytes: number): string => `${(bytes / 1024 ** 3).toFixed(1)} GiB`

const BAR = 64

const memoryOf = ({ capacity, usage }: NodeDetail): string => {
  if (usage === null) return `unknown of ${gibibytes(capacity.memory_bytes)}`
  const share = capacity.memory_bytes === 0 ? 0 : Math.min(1, usage.memory_bytes / capacity.memory_bytes)
  const bar = `<svg width="${BAR}" height="5" aria-hidden="true"><rect class="track" width="${BAR}" height="5" rx="2.5"/><rect class="used" width="${Math.round(share * BAR)}" height="5" rx="2.5"/></svg>`
  return `${bar}${gibibytes(usage.memory_bytes)} of ${gibibytes(capacity.memory_bytes)}`
}

const colourOf = ({ connected, drained }: NodeDetail): string =>
  connected ? (drained ? "is-drained" : "is-connected") : "is-away"

/** Columns of the node list; a setting hides all but name, location and state. */
const columns: ReadonlyArray<{
  readonly name: string
  readonly internal: boolean
  readonly cell: (node: NodeDetail, now: number) => string
}> = [
  { name: "Name", internal: false, cell: ({ name }) => escapeHtml(name) },
  { name: "Id", internal: true, cell: ({ id }) => `<code>${escapeHtml(id)}</code>` },
  { name: "Location", internal: false, cell: ({ location }) => escapeHtml(location) },
  { name: "Address", internal: true, cell: ({ url }) => escapeHtml(url) },
  {
    name: "State",
    internal: false,
    cell: (node) => `<span class="dot ${colourOf(node)}"></span>${escapeHtml(nodeState(node))}`
  },
  { name: "Servers", internal: true, cell: ({ servers }) => String(servers) },
  { name: "Memory", internal: true, cell: memoryOf },
  {
    name: "Last heartbeat",
    internal: true,
    cell: ({ last_seen_at: seen }, now) =>
      seen === null ? "never" : `${duration(Math.max(0, now - Date.parse(seen)))} ago`
  }
]

/** `GET /nodes`: the nodes, every value escaped. `shown` as `banner` is name, location and state only. */
export const nodesPage = (
  nodes: ReadonlyArray<NodeDetail>,
  shown: "banner" | "all" = "all",
  now: number = 0
): string => {
  const visible = columns.filter(({ internal }) => shown === "all" || !internal)
  const row = (node: NodeDetail) =>
    `<tr>${visible.map(({ cell, name }) => `<td data-name="${name}"><span>${cell(node, now)}</span></td>`).join("")}</tr>`
  return styled(
    "Nodes · Muster",
    `<main>
<h1>Nodes</h1>
${nav}
${
  nodes.length === 0
    ? "<p>No nodes found.</p>"
    : `<div class="framed ${shown}"><table>
<thead><tr>${visible.map(({ name }) => `<th scope="col">${name}</th>`).join("")}</tr></thead>
<tbody>
${nodes.map(row).join("\n")}
</tbody>
</table></div>`
}
</main>`
  )
}
