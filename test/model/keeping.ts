/** What clients do with backups, deleted servers and schedules. */
import { Effect } from "effect"
import type { Random } from "../support/random.ts"
import type { ClientRequest, CreateBody, Operation, ScheduleBody } from "./History.ts"

/** Seconds for which a step waits. */
const STEP_TIMEOUT = 5
/** Schedules: each fires every minute. */
const MOST_SCHEDULES = 20

type Ask = (requested: ClientRequest) => Effect.Effect<Operation>

/** The ids that the clients know. */
export const makeKept = () => ({
  backups: new Set<string>(),
  operations: new Set<string>(),
  schedules: new Set<string>(),
  names: 0
})
export type Kept = ReturnType<typeof makeKept>

const stepsOf = (name: string): readonly [ScheduleBody["steps"], ...ReadonlyArray<ScheduleBody["steps"]>] => {
  const backup = { backup: { name } }
  return [
    [{ command: [`write ${name}`] }, backup],
    [{ power: "stop" }, { wait_for: "offline", timeout: STEP_TIMEOUT }, backup, { power: "start" }],
    [{ power: "restart" }, { backup: { name, background: true } }],
    [{ warn: { line: "write {{left}}", at: [2, 1] } }, { command: [`write ${name}`] }]
  ]
}

interface Options {
  readonly kept: Kept
  readonly ask: Ask
  readonly random: Random
  /** A server that exists, or a deleted one. */
  readonly someServer: () => string | undefined
  /** An acknowledged server that was deleted. */
  readonly someDeleted: () => string | undefined
  /** Creates a server from a body until it is acknowledged. */
  readonly create: (body: Pick<CreateBody, "from_backup" | "labels">) => Effect.Effect<void>
  readonly returned: (server: string) => void
}

/** Returns an action of a client. */
export const makeKeeping = ({
  ask,
  create,
  kept,
  random,
  returned,
  someDeleted,
  someServer
}: Options): Effect.Effect<unknown> => {
  const some = (ids: ReadonlySet<string>) => [...ids][random.below(ids.size)]
  const about = (id: string | undefined, act: (id: string) => Effect.Effect<unknown>) =>
    id === undefined ? Effect.void : act(id)
  const noted = (requested: ClientRequest) =>
    Effect.tap(ask(requested), ({ id }) =>
      Effect.sync(() => {
        if (id !== undefined) kept.operations.add(id)
      })
    )
  const write = (server: string) => ask({ kind: "commands", server, text: String(kept.names++) })
  const list = Effect.tap(ask({ kind: "list-backups" }), ({ others = [] }) =>
    Effect.sync(() => {
      for (const id of others) kept.backups.add(id)
    })
  )
  const forget = (ids: Set<string>, id: string, { status }: Operation) =>
    Effect.sync(() => {
      if (status === 404 || status === 200 || status === 204) ids.delete(id)
    })

  /** Restores a server that is stopped before. */
  const restore = (server: string) =>
    about(some(kept.backups), (backup_id) =>
      Effect.gen(function* () {
        yield* ask({ kind: "power", server, action: "kill" })
        const start = random.below(3) === 0 ? ({ start: true } as const) : {}
        const body = { backup_id, safety: random.below(2) === 0, ...start }
        yield* noted({ kind: "restore", server, body })
      })
    )

  const schedule = (server_id: string) => {
    const name = `plan ${kept.names++}`
    const body: ScheduleBody = {
      ...{ name, server_id, cron: "* * * * *", steps: random.pick(stepsOf(name)) },
      ...(random.below(2) === 0 ? { overlap: "queue" as const } : {}),
      ...(random.below(2) === 0 ? { on_failure: "continue" as const } : {})
    }
    return Effect.tap(ask({ kind: "schedule", body }), ({ id }) =>
      Effect.sync(() => {
        if (id !== undefined) kept.schedules.add(id)
      })
    )
  }

  const ofServer = (server: string): Effect.Effect<unknown> => {
    const what = random.below(10)
    if (what < 5) return Effect.andThen(write(server), noted({ kind: "back-up", server }))
    if (what < 8) return restore(server)
    return kept.schedules.size < MOST_SCHEDULES ? schedule(server) : Effect.void
  }

  const ofBackup = (backup: string): Effect.Effect<unknown> => {
    const what = random.below(10)
    if (what < 4) return noted({ kind: "verify", backup })
    if (what < 6) return ask({ kind: "read-backup", backup })
    if (what < 9) return create({ from_backup: backup, labels: {} })
    return Effect.tap(ask({ kind: "delete-backup", backup }), (answer) =>
      forget(kept.backups, backup, answer)
    )
  }

  const ofSchedule = (one: string): Effect.Effect<unknown> => {
    const what = random.below(10)
    if (what < 7) return ask({ kind: "run-schedule", schedule: one })
    if (what < 9) return ask({ kind: "pause-schedule", schedule: one })
    return Effect.tap(ask({ kind: "delete-schedule", schedule: one }), (answer) =>
      forget(kept.schedules, one, answer)
    )
  }

  const undelete = (server: string) =>
    Effect.tap(ask({ kind: "undelete", server }), ({ status }) =>
      Effect.sync(() => {
        if (status === 202) returned(server)
      })
    )

  const purge = (server: string) => ask({ kind: "delete", server, force: random.below(2) === 0, purge: true })

  /** Two actions on a server at a time, mostly at two replicas. */
  const both = Effect.suspend(() => {
    const deleted = someDeleted()
    const server = someServer()
    const together = (...all: ReadonlyArray<Effect.Effect<unknown>>) =>
      Effect.all(all, { concurrency: "unbounded", discard: true })
    const what = random.below(5)
    if (deleted !== undefined && what < 2) return together(undelete(deleted), undelete(deleted))
    if (deleted !== undefined && what < 3) return together(undelete(deleted), purge(deleted))
    if (server === undefined) return Effect.void
    const ended = ask({ kind: "delete", server, force: random.below(2) === 0 })
    if (what < 4) return together(noted({ kind: "back-up", server }), ended)
    return together(ended, undelete(server))
  })

  return Effect.suspend((): Effect.Effect<unknown> => {
    const what = random.below(22)
    if (what < 7) return about(someServer(), ofServer)
    if (what < 8 || (what < 11 && kept.backups.size === 0)) return list
    if (what < 11) return about(some(kept.backups), ofBackup)
    if (what < 14) return about(some(kept.schedules), ofSchedule)
    if (what < 15) return about(some(kept.operations), (operation) => ask({ kind: "cancel", operation }))
    if (what < 16) return ask({ kind: "list-deleted" })
    if (what < 17) return about(someServer(), purge)
    if (what < 19) return both
    return about(someDeleted(), undelete)
  })
}
