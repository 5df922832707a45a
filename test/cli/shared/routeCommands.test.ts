import { globSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { withCommands } from "../../../src/cli/shared/failures.ts"
import { INSTALL_FAILED_HINT, READ_THE_LOG } from "../../../src/contract/domain/InstallState.ts"
import { withActions } from "../../../src/dashboard/dom/routeActions.ts"
import { root, textOf } from "../../support/docs.ts"

/** Routes that no command calls, and the stream of dashboards. */
const withoutCommand = ["GET /api/mixins", "POST /api/events/tickets"]

/** The routes that texts of the sources name, outside comments, contracts, and the pages for browsers. */
const namedRoutes = globSync(
  [
    "src/{app,contract/domain,daemon}/**/*.ts",
    "src/controlPlane/{audit,backups,blueprints,events,http,keys,nodes,operations,schedules,servers,webhooks}/**/*.ts"
  ],
  {
    cwd: root
  }
).flatMap((path) =>
  textOf(path)
    .split("\n")
    .filter((line) => !/^\s*(?:\/?\*|\/\/)/.test(line))
    .flatMap((line) => line.match(/\b(?:GET|POST|PATCH|PUT|DELETE) \/api\/[\w:/-]+/g) ?? [])
)

describe("spec 8: hints of the service", () => {
  it("every route that a hint names has a command, and every command exists", () => {
    const page = textOf("docs/commands.md")
    assert.isAbove(namedRoutes.length, 20)
    for (const route of new Set(namedRoutes)) {
      if (withoutCommand.includes(route)) continue
      const [, command = ""] = /^`(muster [a-z -]+?)(?: <.*)?`$/.exec(withCommands(route)) ?? []
      assert.match(page, new RegExp(`^##+ ${command}$`, "m"), route)
    }
  })

  it("the reason of a failed installation names a command, and a part of the page on the dashboard", () => {
    for (const reason of [READ_THE_LOG, INSTALL_FAILED_HINT]) {
      assert.include(withCommands(reason), "`muster servers reinstall <server>`")
      assert.include(withActions(reason), "Reinstall, in the menu of the server")
      for (const shown of [withCommands(reason), withActions(reason)]) assert.notInclude(shown, "/api/")
    }
  })

  it("a route is replaced as a whole, with its query and the words that decide the command", () => {
    for (const [text, expected] of [
      ["GET /api/servers lists what exists.", "`muster servers list` lists what exists."],
      ["see GET /api/servers?q=k7f now", "see `muster servers list --search k7f` now"],
      ["Stop it first: POST /api/servers/:server/power.", "Stop it first: `muster servers stop <server>`."],
      [
        "server is running: k7f3m1x9q2ab. Stop it first: POST /api/servers/:server/power.",
        "server is running: k7f3m1x9q2ab. Stop it first: `muster servers stop k7f3m1x9q2ab`."
      ],
      [
        "schedule s1 runs: r2. Wait for its end, or cancel it: POST /api/runs/:run/cancel.",
        "schedule s1 runs: r2. Wait for its end, or cancel it: `muster schedules cancel r2`."
      ],
      [
        "Read GET /api/servers/:server/logs, then start it again: POST /api/servers/:server/power.",
        "Read `muster servers logs <server>`, then start it again: `muster servers start <server>`."
      ],
      [
        "name another: POST /api/servers/:server/upgrade with blueprint_id.",
        "name another: `muster servers upgrade <server> --blueprint <id>`."
      ],
      [
        "GET /api/audit?object=k7f has its last changes. Create it with overrides.save: true.",
        "`muster audit --object k7f` has its last changes. Create it with `--set save=true`."
      ],
      ["Or send force=true: it is deleted.", "Or add `--force`: it is deleted."],
      ["GET /api/operations?server_id=k7f lists them.", "`muster operations list --server k7f` lists them."],
      [
        "Delete some: GET /api/backups?server_id=k7f lists them.",
        "Delete some: `muster backups list --server k7f` lists them."
      ],
      ["GET /api/servers/:server/other", "GET /api/servers/:server/other"]
    ] as const) {
      assert.strictEqual(withCommands(text), expected)
    }
  })
})
