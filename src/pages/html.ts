import { createHash } from "node:crypto"
import { HttpServerResponse } from "effect/http"
import { type NodeDetail, nodeState } from "../domain/Node.ts"

const entities: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;"
}

/** Escapes text for HTML, also inside quoted attributes. */
export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (char) => entities[char] ?? char)

const style = `
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid #8884; }
code { font-size: .95em; }
nav a { margin-right: 1rem; }
`

/** Path of the icon that browsers request for every page. */
export const FAVICON = "/favicon.ico"

/** The icon: a stack of three servers. */
export const favicon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#2b6cb0"/><path stroke="#fff" stroke-width="2" d="M4 4.5h8M4 8h8M4 11.5h8"/></svg>`

/** A `Content-Security-Policy` that allows `sources` and nothing else: no frame, no form, no other base. */
export const policyOf = (...sources: ReadonlyArray<string>): string =>
  ["default-src 'none'", ...sources, "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"].join(
    "; "
  )

/** The pages load the icon alone and run nothing; the hash allows their one style. */
const POLICY = policyOf(
  "img-src 'self'",
  `style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'`
)

/** The media type of the pages. */
export const HTML = "text/html; charset=utf-8"

/** The headers of an HTML page with this `Content-Security-Policy`. */
export const pageHeaders = (policy: string) => ({
  "content-security-policy": policy,
  "x-frame-options": "DENY"
})

/** The response with an HTML page that loads nothing but the icon. */
export const pageResponse = (html: string) =>
  HttpServerResponse.text(html, { contentType: HTML, headers: pageHeaders(POLICY) })

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

const styled = (title: string, body: string) => page(title, `<style>${style}</style>`, body)

const nav = `<nav><a href="/">Muster</a><a href="/nodes">Nodes</a><a href="/docs">API</a></nav>`

/** `GET /`: the banner page with its links (contract 4.11). */
export const bannerPage = (version: string): string =>
  styled(
    "Muster",
    `<main>
<h1>Muster</h1>
<p>Control plane for game servers, version <code>${escapeHtml(version)}</code>.</p>
${nav}
</main>`
  )

/** Columns of the node list; a setting hides the ids and addresses. */
const columns: ReadonlyArray<{
  readonly name: string
  readonly internal: boolean
  readonly cell: (node: NodeDetail) => string
}> = [
  { name: "Name", internal: false, cell: ({ name }) => escapeHtml(name) },
  { name: "Id", internal: true, cell: ({ id }) => `<code>${escapeHtml(id)}</code>` },
  { name: "Location", internal: false, cell: ({ location }) => escapeHtml(location) },
  { name: "Address", internal: true, cell: ({ url }) => escapeHtml(url) },
  { name: "State", internal: false, cell: (node) => escapeHtml(nodeState(node)) }
]

/** `GET /nodes`: the nodes, every value escaped; `banner`: without ids and addresses. */
export const nodesPage = (nodes: ReadonlyArray<NodeDetail>, shown: "banner" | "all" = "all"): string => {
  const visible = columns.filter(({ internal }) => shown === "all" || !internal)
  const row = (node: NodeDetail) => `<tr>${visible.map(({ cell }) => `<td>${cell(node)}</td>`).join("")}</tr>`
  return styled(
    "Nodes · Muster",
    `<main>
<h1>Nodes</h1>
${nav}
${
  nodes.length === 0
    ? "<p>No nodes found.</p>"
    : `<div class="scroll"><table>
<thead><tr>${visible.map(({ name }) => `<th>${name}</th>`).join("")}</tr></thead>
<tbody>
${nodes.map(row).join("\n")}
</tbody>
</table></div>`
}
</main>`
  )
}
