/** Parts of pages in place of the routes that messages of the service name: its hints are for callers of the API. */

const actions: Readonly<Record<string, string>> = {
  "GET /api/backups": "the page Backups",
  "GET /api/backups/:backup": "the tab Backups of its server",
  "GET /api/backups/:backup/archive": "Download, in the tab Backups",
  "GET /api/backups/:backup/files": "Browse, in the menu of the backup",
  "GET /api/backups/:backup/files/content": "Browse, in the menu of the backup",
  "GET /api/nodes": "the page Nodes",
  "GET /api/nodes/:node": "the page Nodes",
  "PATCH /api/nodes/:node/drained": "End the drain, on the page Nodes",
  "GET /api/runs/:run": "Show the runs, on the page Schedules",
  "POST /api/runs/:run/cancel": "Cancel, in its runs",
  "GET /api/schedules": "the page Schedules",
  "GET /api/schedules/:schedule/runs": "Show the runs, on the page Schedules",
  "GET /api/servers": "the list of servers",
  "POST /api/servers with from_backup": "New server from this backup, in the menu of the backup",
  "PATCH /api/servers/:server": "the tab Changes",
  "GET /api/servers/:server/files": "the tab Files",
  "GET /api/servers/:server/files/archive": "Download, in the list of its folder",
  "GET /api/servers/:server/install": "the tab Installation",
  "GET /api/servers/:server/install/logs": "the output in the tab Installation",
  "GET /api/servers/:server/logs": "the tab Console",
  // The words before it name the button.
  ": POST /api/servers/:server/power": "",
  "POST /api/servers/:server/reinstall": "Reinstall, in the menu of the server",
  "POST /api/servers/:server/upgrade": "Upgrade, in the menu of the server"
}

const longestFirst = Object.keys(actions).toSorted((one, other) => other.length - one.length)
const named = new RegExp(`(${longestFirst.join("|")})(?![\\w/:-])(?:\\?(?:q|server_id)=[a-z0-9]+)?`, "g")

/** Returns a message with the parts of pages that do what its routes and parameters do. */
export const withActions = (message: string): string =>
  message
    .replace(named, (_, route: string) => actions[route] ?? route)
    .replace(/\bsend force=true\b/g, "delete it also if its node cannot be reached")
