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
