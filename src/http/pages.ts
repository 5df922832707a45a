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
nav a { margin-right: 1rem; }`

const page = (title: string, body: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${style}
</style>
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

const row = (node: NodeDetail) =>
  `<tr><td>${escapeHtml(node.name)}</td><td><code>${escapeHtml(node.id)}</code></td><td>${escapeHtml(node.location)}</td>` +
  `<td>${escapeHtml(node.url)}</td><td>${escapeHtml(nodeState(node))}</td></tr>`

/** `GET /nodes`: the nodes, every value escaped. */
export const nodesPage = (nodes: ReadonlyArray<NodeDetail>): string =>
  page(
    "Nodes · Muster",
    `<main>
<h1>Nodes</h1>
${nav}
${
  nodes.length === 0
    ? "<p>No nodes found.</p>"
    : `<table>
<thead><tr><th>Name</th><th>Id</th><th>Location</th><th>Address</th><th>State</th></tr></thead>
<tbody>
${nodes.map(row).join("\n")}
</tbody>
</table>`
}
</main>`
  )
