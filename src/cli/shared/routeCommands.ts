/** Commands in place of the routes that messages of the service name: its hints are for callers of the API. */

/** Routes with their commands. A power action depends on the words before the route. */
const commands: Readonly<Record<string, string>> = {
  "GET /api/audit": "muster audit",
  "GET /api/blueprints": "muster blueprints list",
  "POST /api/blueprints/reload": "muster blueprints reload",
  "GET /api/keys": "muster keys list",
  "DELETE /api/keys/:key": "muster keys revoke <key>",
  "GET /api/nodes": "muster nodes list",
  "GET /api/nodes/:node": "muster nodes show <node>",
  "PATCH /api/nodes/:node/drained": "muster nodes undrain <node>",
  "GET /api/quotas": "muster quotas list",
  "POST /api/quotas": "muster quotas create <name>",
  "PATCH /api/quotas/:quota": "muster quotas patch <quota>",
  "GET /api/rollouts": "muster rollouts list",
  "GET /api/rollouts/:rollout": "muster rollouts show <rollout>",
  "POST /api/rollouts/:rollout/abort": "muster rollouts abort <rollout>",
  "GET /api/servers": "muster servers list",
  "PATCH /api/servers/:server": "muster servers patch <server>",
  "GET /api/servers/:server/install": "muster servers install-log <server>",
  "GET /api/servers/:server/install/logs": "muster servers install-log <server>",
  "GET /api/servers/:server/logs": "muster servers logs <server>",
  "POST /api/servers/:server/power": "muster servers stop <server>",
  "start it again: POST /api/servers/:server/power": "muster servers start <server>",
  "POST /api/servers/:server/reinstall": "muster servers reinstall <server>",
  "POST /api/servers/:server/upgrade": "muster servers upgrade <server>",
  "POST /api/servers/:server/upgrade with blueprint_id": "muster servers upgrade <server> --blueprint <id>",
  "GET /api/software": "muster software list",
  "POST /api/software/reload": "muster software reload",
  "GET /api/webhooks": "muster webhooks list"
}

const longestFirst = Object.keys(commands).toSorted((one, other) => other.length - one.length)

/** A route, with a query that has a flag, but not as the beginning of a longer one. */
const named = new RegExp(`(${longestFirst.join("|")})(?![\\w/:-])(?:\\?(q|object)=(\\w+))?`, "g")

/** Replaces routes and parameters in a message by commands and flags; without `server`, commands have a placeholder. */
export const withCommands = (message: string, server = "<server>"): string =>
  message
    .replace(named, (_, route: string, name: string | undefined, value: string) => {
      const words = /^(.*?)(?:DELETE|GET|POST|PATCH) /.exec(route)?.[1] ?? ""
      const option = name === undefined ? "" : ` --${name === "q" ? "search" : name} ${value}`
      return `${words}\`${commands[route]?.replace("<server>", server)}${option}\``
    })
    .replace(/\boverrides\.save: true/g, "`--set save=true`")
    .replace(/\bsend force=true\b/g, "add `--force`")
