/** Writes the pages of `docs/` that are generated: `npm run docs`. */
import { writeFileSync } from "node:fs"
import { resolve } from "node:path"
import { Effect } from "effect"
import { commandSettings } from "../src/shared/config/command.ts"
import { nodeSettings } from "../src/shared/config/node.ts"
import { fileForm, type Setting } from "../src/shared/config/Setting.ts"
import { settings } from "../src/shared/config/service.ts"
import { metrics } from "../src/shared/observability/metrics.ts"
import { commandsPage } from "./commandsPage.ts"
import { routesPage } from "./routesPage.ts"

type Listed = Pick<Setting<unknown>, "name" | "standard" | "meaning" | "may" | "secret">

/** The headings of the service's settings, each with its first setting. */
const serviceParts = {
  "Address and keys": settings.host,
  "Data and definitions": settings.dataDir,
  Database: settings.databaseUrl,
  "Embedded node": settings.embeddedNode,
  "Files and processes of servers": settings.allowedMounts,
  Placement: settings.placement,
  "Nodes on other machines": settings.nodeLostAfter,
  TLS: settings.tlsCert,
  "Events and requests": settings.eventsKeepHours,
  "Shutdown and logs": settings.shutdownGrace
}

const nodeParts = {
  "Control plane and identity": nodeSettings.controlUrl,
  "Address and TLS": nodeSettings.host,
  "Servers of the node": nodeSettings.allocations,
  "Files and processes of servers": nodeSettings.dataDir,
  Logs: nodeSettings.logFormat
}

const code = (text: string) => (text === "" ? "" : `\`${text.replaceAll(",", ", ")}\``)

const row = ({ may, meaning, name, secret, standard }: Listed) => {
  const names = secret === true ? `\`${name}\`, \`${fileForm(name)}\`` : `\`${name}\``
  return `| ${names} | ${code(standard)} | ${meaning} | ${may.replaceAll("|", "\\|")} |`
}

const table = (all: ReadonlyArray<Listed>) =>
  ["| Setting | Default | Sets | Values |", "|---|---|---|---|", ...all.map(row)].join("\n")

const parted = (all: Readonly<Record<string, Listed>>, parts: Readonly<Record<string, Listed>>) => {
  const list = Object.values(all)
  const starts = Object.values(parts).map((first) => list.indexOf(first))
  return Object.keys(parts)
    .map((heading, i) => `### ${heading}\n\n${table(list.slice(starts[i], starts[i + 1]))}`)
    .join("\n\n")
}

/** The text of `docs/settings.md`. */
export const settingsPage = `# Settings

\`npm run docs\` writes this page from \`src/shared/config\`; do not edit it.

Settings are environment variables. An empty variable counts as unset. If a setting is invalid, the command prints one
line that names it, and ends with status 1. An unknown variable that begins with \`MUSTER_\` is a warning of \`muster serve\`.

## Give a secret in a file

\`\`\`text
MUSTER_NODE_KEY_FILE=/run/secrets/node-key
\`\`\`

Every secret has a second form with \`_FILE\` at the end of its name. It names a regular file of at most 64 KiB with the
value on one line. Setting both forms is an error.

Prefer files. A process removes the variables from its environment when it starts, and its children never get them. But
Linux shows the first environment of a process in \`/proc/<pid>/environ\` to its user and to root until the process ends.

## Listen on a socket of systemd

If a socket unit passes a listening TCP socket, \`muster serve\` and \`muster node\` listen on it. Its address and port replace
\`MUSTER_HOST\` and \`MUSTER_PORT\`, or \`MUSTER_NODE_HOST\` and \`MUSTER_NODE_PORT\`; the log names them. Several sockets, or a
socket of another kind, are an error at the start. [Deployment](deployment.md) has the units.

## The service: \`muster serve\`

${parted(settings, serviceParts)}

## A node: \`muster node\`

${parted(nodeSettings, nodeParts)}

## Commands that call a service

${table(Object.values(commandSettings))}
`

const metricTable = (origin: string) =>
  [
    "| Metric | Type | Meaning | Labels |",
    "|---|---|---|---|",
    ...metrics
      .filter((metric) => metric.origin.split(", ").includes(origin))
      .map(
        ({ description, labels, name, type }) =>
          `| \`${name}\` | ${type.toLowerCase()} | ${description} | ${Object.entries(labels)
            .map(([label, values]) => `\`${label}\`: ${values}`)
            .join("; ")} |`
      )
  ].join("\n")

/** The text of `docs/metrics.md`. */
export const metricsPage = `# Metrics

\`npm run docs\` writes this page from \`src/shared/observability/metrics.ts\`; do not edit it.

\`GET /metrics\` has the text format of Prometheus. A metric appears with its first value. The number of label values is
bounded: no label has a server, a key or an address.

## Read the metrics of the service

\`\`\`yaml
scrape_configs:
  - job_name: muster
    authorization: {credentials_file: /etc/prometheus/muster.key}
    static_configs: [{targets: ["127.0.0.1:5620"]}]
\`\`\`

The key needs the scope \`Metrics\` or \`AppAdmin\`. Each replica has its own counters, so sum them. All replicas have the
same gauges of servers and nodes, so take one of them. An embedded node has no metrics of its own.

${metricTable("service")}

## Read the metrics of a daemon

Set \`MUSTER_NODE_METRICS_KEY\` to a random text of at least 24 characters, and give Prometheus the same text. Without the
setting only the control plane can call the daemon. With \`MUSTER_NODE_CLIENT_CA\`, Prometheus needs a client certificate, too.

${metricTable("daemon")}
`

if (import.meta.main) {
  const docs = resolve(import.meta.dirname, "../docs")
  writeFileSync(resolve(docs, "settings.md"), settingsPage)
  writeFileSync(resolve(docs, "metrics.md"), metricsPage)
  writeFileSync(resolve(docs, "commands.md"), await Effect.runPromise(commandsPage))
  writeFileSync(resolve(docs, "routes.md"), routesPage)
}
