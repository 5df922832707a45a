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
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
code { font-size: .95em; }
nav a { margin-right: 1rem; }
`

/** A `Content-Security-Policy` that allows `sources` and nothing else: no frame, no form, no other base. */
export const policyOf = (...sources: ReadonlyArray<string>): string =>
  ["default-src 'none'", ...sources, "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"].join(
    "; "
  )

/** The pages load nothing and run nothing; their one style is known by its hash. */
const POLICY = policyOf(
  "img-src data:",
  `style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'`
)

/** The response with an HTML page and its `Content-Security-Policy`. */
export const pageResponse = (html: string, policy = POLICY) =>
  HttpServerResponse.text(html, {
    contentType: "text/html; charset=utf-8",
    headers: { "content-security-policy": policy, "x-frame-options": "DENY" }
  })

const page = (title: string, body: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
</head>
<body>
${body}
</body>
</html>
`

const nav = `<nav><a href="/">Muster</a><a href="/nodes">Nodes</a><a href="/docs">API</a></nav>`

/** `GET /`: what this is and where to go (contract 4.11). */
export const bannerPage = (version: string): string =>
  page(
    "Muster",
    `<main>
<h1>Muster</h1>
<p>Control plane for game servers, version <code>${escapeHtml(version)}</code>.</p>
${nav}
</main>`
  )

/** Columns of the node list; the ids and the addresses of nodes are not for everybody. */
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
  return page(
    "Nodes · Muster",
    `<main>
<h1>Nodes</h1>
${nav}
${
  nodes.length === 0
    ? "<p>No nodes found.</p>"
    : `<table>
<thead><tr>${visible.map(({ name }) => `<th>${name}</th>`).join("")}</tr></thead>
<tbody>
${nodes.map(row).join("\n")}
</tbody>
</table>`
}
</main>`
  )
}
