import { createHash } from "node:crypto"
import { Effect, Stream } from "effect"
import type { BackupTaskState } from "../../../../src/contract/domain/Backup.ts"
import type { ServerId } from "../../../../src/contract/domain/Id.ts"
import { type DaemonError, DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import type { BackupTaskRequest, NodeBackups } from "../../../../src/contract/nodeApi/NodeBackups.ts"
import { type FileError, FileRefused } from "../../../../src/contract/nodeApi/NodeFiles.ts"

/** How long a task takes, in ms: longer than the time between two calls of a leader that follows it. */
const TASK_MILLIS = 700

/** A step of a task of an operation. */
export interface TaskEvent {
  readonly what: "begun" | "done" | "failed" | "cancelled"
  readonly operation_id: string
  readonly kind: BackupTaskRequest["task"]["kind"]
  readonly backup_id: string
  readonly server_id: ServerId
}

interface Task {
  readonly server_id: ServerId
  readonly request: BackupTaskRequest
  /** The text that it copies, once the task has all of it. */
  readonly text: string | undefined
  /** When it is done, in ms of a monotonic clock. */
  readonly due: number
  state: BackupTaskState
}

/** The parts of a daemon that its backups use. */
interface Host {
  /** The files of servers. */
  readonly files: Map<ServerId, string>
  readonly status: (id: ServerId) => string | undefined
  readonly call: <A>(
    method: string,
    id: string,
    act: () => A | DaemonRefused
  ) => Effect.Effect<A, DaemonError>
}

export const digestOf = (text: string): string => createHash("sha256").update(text).digest("hex")

const stateOf = (state: BackupTaskState["state"], rest: Partial<BackupTaskState> = {}): BackupTaskState => ({
  progress: { done: 0, total: 0, unit: "bytes" },
  state,
  ...rest
})

const failedAs = (reason: string) => stateOf("failed", { reason })

const keyOf = ({ operation_id, task }: BackupTaskRequest) => `${operation_id}/${task.kind}`

/** Its backups are one text, without files. */
const notRead = new FileRefused({ status: 409, detail: "the backup has no files", hint: "Download it." })

const notStored = (id: string) =>
  new FileRefused({ status: 404, detail: `the target does not have backup ${id}`, hint: "Delete it." })

/** Turns a refusal among the results of a call into its error. */
const refused = <A>(call: Effect.Effect<A | FileRefused, DaemonError>): Effect.Effect<A, FileError> =>
  Effect.flatMap(call, (answer) =>
    answer instanceof FileRefused ? Effect.fail(answer) : Effect.succeed(answer)
  )

/**
 * The backups of a daemon in memory: the text of the files of a server. Tasks take their time, and end with
 * {@link restarted}; finished backups and the last restore of each server are on the disk.
 */
export class FakeBackups {
  /** Finished backups by id. */
  readonly stored = new Map<string, string>()
  /** Backups without a manifest. */
  readonly parts = new Set<string>()
  /** The operation whose restore has put the files of a server in place. */
  readonly placed = new Map<ServerId, string>()
  readonly #tasks = new Map<string, Task>()
  readonly #host: Host
  observe: (event: TaskEvent) => void = () => {}

  constructor(host: Host) {
    this.#host = host
  }

  /** Whether a task works on the files of a server; `restore`: one that replaces them. */
  works(id: ServerId, kind?: "restore"): boolean {
    this.#settle()
    return [...this.#tasks.values()].some(
      ({ request, server_id, state }) =>
        server_id === id && state.state === "running" && (kind ?? request.task.kind) === request.task.kind
    )
  }

  /** Ends the tasks of a server that is removed. */
  removed(id: ServerId) {
    this.#settle()
    for (const task of this.#tasks.values())
      if (task.server_id === id && task.state.state === "running") this.#fail(task, "the server was removed")
  }

  /** Forgets the tasks, as a daemon that is started again. */
  restarted() {
    this.#settle()
    this.#tasks.clear()
  }

  wiped() {
    for (const all of [this.stored, this.parts, this.placed, this.#tasks]) all.clear()
  }

  #note(what: TaskEvent["what"], server_id: ServerId, { operation_id, task }: BackupTaskRequest) {
    this.observe({ what, operation_id, kind: task.kind, backup_id: task.backup_id, server_id })
  }

  #fail(task: Task, reason: string) {
    task.state = failedAs(reason)
    if (task.request.task.kind === "create") this.parts.delete(task.request.task.backup_id)
    this.#note("failed", task.server_id, task.request)
  }

  /** Completes the tasks whose time has come. */
  #settle() {
    const now = performance.now()
    for (const task of this.#tasks.values())
      if (task.state.state === "running" && task.due <= now) this.#complete(task)
  }

  #complete(task: Task) {
    const { request, server_id, text } = task
    const { backup_id, kind } = request.task
    const stored = text ?? this.stored.get(backup_id)
    if (stored === undefined) return this.#fail(task, notStored(backup_id).detail)
    if (kind === "create") {
      this.stored.set(backup_id, stored)
      this.parts.delete(backup_id)
      task.state = stateOf("done", { figures: this.#figures(stored) })
    } else {
      if (digestOf(stored) !== request.task.archive.sha256) return this.#fail(task, "the archive is damaged")
      const status = this.#host.status(server_id)
      if (kind === "restore") {
        if (status !== "offline") return this.#fail(task, `the server is ${status}`)
        this.#host.files.set(server_id, stored)
        this.placed.set(server_id, request.operation_id)
      }
      task.state = stateOf("done")
    }
    this.#note("done", server_id, request)
  }

  #figures(text: string) {
    return {
      ...{ files: 1, changed_files: 0, size_bytes: text.length, stored_bytes: text.length },
      ...{ sha256: digestOf(text), manifest_sha256: digestOf(text), consistency: "crash" as const }
    }
  }

  #begin(server_id: ServerId, request: BackupTaskRequest, arrived?: string): BackupTaskState {
    const { task } = request
    this.#note("begun", server_id, request)
    const text = task.kind === "create" ? (this.#host.files.get(server_id) ?? "") : arrived
    if (task.kind === "create") this.parts.add(task.backup_id)
    const begun: Task = {
      server_id,
      request,
      text,
      due: performance.now() + TASK_MILLIS,
      state: stateOf("running")
    }
    this.#tasks.set(keyOf(request), begun)
    return begun.state
  }

  #work(id: ServerId, request: BackupTaskRequest): BackupTaskState | DaemonRefused {
    this.#settle()
    const { operation_id, task } = request
    const known = this.#tasks.get(keyOf(request))
    if (known !== undefined) return known.state
    const status = this.#host.status(id)
    if (status === undefined)
      return new DaemonRefused({ status: 404, detail: `server not found: ${id}`, hint: "Check its id." })
    const before = task.kind === "create" ? this.stored.get(task.backup_id) : undefined
    if (before !== undefined) return stateOf("done", { figures: this.#figures(before) })
    if (task.kind !== "restore") return this.#begin(id, request)
    if (this.placed.get(id) === operation_id) return stateOf("done")
    if (task.arrives) return stateOf("waiting")
    return status === "offline" ? this.#begin(id, request) : failedAs(`the server is ${status}`)
  }

  readonly calls: NodeBackups = {
    work: (id, request) => this.#host.call("backups.work", id, () => this.#work(id, request)),
    receive: (id, request, bytes) =>
      Effect.gen({ self: this }, function* () {
        const pieces = yield* Stream.runCollect(bytes)
        const text = pieces.map((piece) => new TextDecoder().decode(piece)).join("")
        yield* refused(
          this.#host.call("backups.receive", id, () => {
            this.#settle()
            if (this.#tasks.get(keyOf(request))?.state.state === "running")
              return new FileRefused({ status: 409, detail: "the archive arrives already", hint: "Wait." })
            if (this.#host.status(id) !== "offline")
              return new FileRefused({ status: 409, detail: "the server is not offline", hint: "Stop it." })
            this.#begin(id, request, text)
            return undefined
          })
        )
      }),
    cancel: (id, request) =>
      this.#host.call("backups.cancel", id, () => {
        this.#settle()
        const { task } = request
        this.#tasks.set(keyOf(request), {
          ...{ server_id: id, request, text: undefined, due: 0, state: failedAs("it was cancelled") }
        })
        if (task.kind === "create") {
          this.stored.delete(task.backup_id)
          this.parts.delete(task.backup_id)
        }
        this.#note("cancelled", id, request)
        return task.kind === "restore" && this.placed.get(id) === request.operation_id ? {} : undefined
      }),
    remove: (backup_id) =>
      refused(
        this.#host.call("backups.remove", backup_id, () => {
          this.#settle()
          const isUsed = [...this.#tasks.values()].some(
            ({ request, state }) => request.task.backup_id === backup_id && state.state === "running"
          )
          if (isUsed) return new FileRefused({ status: 409, detail: "a task works on it", hint: "Wait." })
          this.stored.delete(backup_id)
          this.parts.delete(backup_id)
          return undefined
        })
      ),
    archive: ({ id: backup_id }) =>
      Effect.map(
        refused(
          this.#host.call("backups.archive", backup_id, () => {
            this.#settle()
            return this.stored.get(backup_id) ?? notStored(backup_id)
          })
        ),
        (text) => Stream.make(new TextEncoder().encode(text))
      ),
    look: () => Effect.fail(notRead),
    contents: () => Effect.fail(notRead),
    definition: () => Effect.fail(notRead),
    index: () => Effect.fail(notRead),
    compare: () => Effect.fail(notRead),
    test: () => Effect.succeed({ ok: true })
  }
}
