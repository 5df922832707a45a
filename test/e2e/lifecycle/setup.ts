import { homedir } from "node:os"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { type EventStream, replay, subscribe } from "../../support/events.ts"
import type { Service, ServiceFailed } from "../../support/Service.ts"
import { expectStatus } from "../../support/servers.ts"

/** A path outside of /tmp: install scripts have a private /tmp, and those of a root daemon run as other users. */
export const besideScripts = (name: string) =>
  join(process.geteuid?.() === 0 ? "/var/lib" : homedir(), `muster-test-${name}-${process.pid}`)
export const licence = besideScripts("licence")
/** The script of `gated` ends once it exists. */
export const gate = besideScripts("gate")

export const definitions = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": consoleServer, "world.txt": "a new world" },
      install: { script: "for n in 1 2 3 4 5; do echo step $n; done" },
      extra: { "start-timeout": 20 }
    }),
    "clean.yml": softwareFile("clean", {
      files: { "server.sh": consoleServer },
      extra: { "clean-exit": "stop" }
    }),
    "late.yml": softwareFile("late", {
      invocation: "sh -c 'echo not yet; while read -r line; do :; done'",
      extra: { "start-timeout": 1 }
    }),
    "gated.yml": softwareFile("gated", {
      files: { "server.sh": consoleServer },
      install: { script: `echo waiting\nwhile [ ! -e ${gate} ]; do sleep 0.05; done\necho done` }
    }),
    "licensed.yml": softwareFile("licensed", {
      files: { "server.sh": consoleServer },
      install: { script: `echo looking for a licence\ntest -e ${licence} || exit 3\necho found it` }
    })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false }),
    "clean.yml": blueprintFile("clean", "clean"),
    "late.yml": blueprintFile("late", "late"),
    "gated.yml": blueprintFile("gated", "gated"),
    "licensed.yml": blueprintFile("licensed", "licensed"),
    "stubborn.yml": blueprintFile("stubborn", "game", {
      server: { restart: { on_crash: true, delay: 0, max_per_hour: 2 } }
    })
  }
}

export const up = ["installing", "offline", "starting", "running"]
export const upAgain = ["starting", "running"]
export const down = ["stopping", "offline"]

/** The events of one server from its creation on. */
export const follow = (api: Service): Effect.Effect<EventStream, ServiceFailed, Scope.Scope> => subscribe(api)

/** All statuses of a server in the journal, in order. */
export const pathOf = Effect.fnUntraced(function* (api: Service, id: string) {
  const metrics = yield* expectStatus(api, 200, "GET", "/metrics")
  const newest = Number(/^muster_journal_newest_cursor (\d+)/m.exec(metrics.text)?.[1])
  const events = yield* replay(api, newest)
  return events.filter((event) => event.Data.server_id === id)
})

export const fileOf = (api: Service, id: string, name: string) =>
  join(api.dataDir, "node", "servers", id, "files", name)
