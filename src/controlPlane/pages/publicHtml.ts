import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { HttpServerResponse } from "effect/http"
import { type NodeDetail, nodeState } from "../../contract/domain/Node.ts"
import { ServerStatus } from "../../contract/domain/ServerStatus.ts"

const entities: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;"
}

/** Escapes text for HTML, also inside quoted attributes. */
export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (char) => entities[char] ?? char)

/** Path of the icon that browsers request for every page. */
export const FAVICON = "/favicon.ico"

export const favicon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#2f5bd0"/><path stroke="#fff" stroke-width="2" d="M4 4.5h8M4 8h8M4 11.5h8"/></svg>`

/** A `Content-Security-Policy` that allows `sources` and nothing else: no frame, no form, no other base. */
export const policyOf = (...sources: ReadonlyArray<string>): string =>
  ["default-src 'none'", ...sources, "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"].join(
    "; "
  )

export const HTML = "text/html; charset=utf-8"

/** The headers of an HTML page with this `Content-Security-Policy`. */
export const pageHeaders = (policy: string) => ({
  "content-security-policy": policy,
  "x-frame-options": "DENY"
})

/** Returns a page; `head`: its further elements. */
export const page = (title: string, head: string, body: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="${FAVICON}">
<title>${escapeHtml(title)}</title>
${head}
</head>
<body>
${body}
</body>
</html>
`

const publicStyle = readFileSync(new URL("./public.css", import.meta.url), "utf8")

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
