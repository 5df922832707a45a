import { Context } from "effect"
import { HttpApi, OpenApi } from "effect/http-api"
import { ApplicationApi, openApiDocument } from "../src/contract/api/ApplicationApi.ts"
import { Policy } from "../src/contract/api/middleware.ts"

const document = openApiDocument("")

/** The rows of the routes of one group, by its title. */
const routeRows = (): ReadonlyMap<string, ReadonlyArray<string>> => {
  const rows = new Map<string, Array<string>>()
  HttpApi.reflect(ApplicationApi, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group }) => {
      const title = Context.getOrElse(group.annotations, OpenApi.Title, () => group.identifier)
      const path = endpoint.path.replaceAll(/:(\w+)/g, "{$1}")
      // The keys of a path are its methods in lower case.
      const method = endpoint.method.toLowerCase() as OpenApi.OpenAPISpecMethodName
      const operation = document.paths[path]?.[method]
      const parameters = (operation?.parameters ?? [])
        .filter(({ in: place }) => place !== "path")
        .map(({ name }) => `\`${name}\``)
      const needed = path.startsWith("/api/")
        ? (Context.get(endpoint.annotations, Policy).right ?? "scope `AppAdmin`")
        : path === "/metrics"
          ? "scope `Metrics`"
          : "no key"
      const row = `| \`${endpoint.method} ${endpoint.path}\` | ${operation?.summary ?? ""} | ${needed} | ${parameters.join(", ")} |`
      rows.set(title, [...(rows.get(title) ?? []), row])
    }
  })
  return rows
}

/** The text of `docs/routes.md`. */
export const routesPage = `# Routes

\`npm run docs\` writes this page from \`src/contract/api\`; do not edit it.

The page \`/docs\` of a service shows bodies, responses and errors, and tries requests. \`/openapi.json\` is the same as
OpenAPI 3.1, and \`/openapi-3.0.json\` as OpenAPI 3.0. [Keys](keys.md) explains the rights in the third column; a key of the
scope \`AppAdmin\` has all of them.

${[...routeRows()]
  .map(([title, rows]) =>
    [`## ${title}`, "", "| Route | Task | Needs | Parameters |", "|---|---|---|---|", ...rows].join("\n")
  )
  .join("\n\n")}
`
