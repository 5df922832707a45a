/** A client that owns one server on a real node, and knows what its files must be during faults. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../support/eventually.ts"
import type { Random } from "../support/random.ts"
import { type Answer, adminKey, type RequestOptions, requestTo } from "../support/Service.ts"

/** Longer than any fault lasts, so that no request is carried out after a repetition of it was answered. */
const ANSWERED_WITHIN = "30 seconds"
const ENDS_WITHIN = "90 seconds"
const AGAIN = "200 millis"
/** Bytes that a backup cannot compress, so that its task takes some time. */
const NOISE = 3_000_000

interface OperationSeen {
  readonly id: string
  readonly kind: string
  readonly state: "queued" | "running" | "done" | "failed" | "cancelled"
  readonly reason?: string
}
interface BackupSeen {
  readonly id: string
  readonly state: string
}

export interface KeeperOptions {
  readonly name: string
  readonly urls: ReadonlyArray<string>
  readonly nodes: readonly [string, ...ReadonlyArray<string>]
  readonly node: string
  readonly random: Random
  /** By id of a backup: the text that the files had. */
  readonly expected: Map<string, string>
  readonly note: (what: object) => void
}

/** Waits for the answer of any replica: one that is killed, or has no node or database, is asked again. */
const makeAsk = ({ name, note, random, urls }: KeeperOptions) =>
  Effect.fnUntraced(function* (method: string, path: string, options: RequestOptions = {}) {
    for (;;) {
      const url = urls[random.below(urls.length)] ?? ""
      const answer: Answer | undefined = yield* requestTo(url, adminKey)(method, path, options).pipe(
        Effect.timeout(ANSWERED_WITHIN),
        Effect.orElseSucceed(() => undefined)
      )
      if (method !== "GET")
        note({ name, method, path, status: answer?.status, text: answer?.text.slice(0, 200) })
      if (answer !== undefined && answer.status < 500) return answer
      yield* Effect.sleep(AGAIN)
    }
  })

/** What the keeper does with its server. */
export const makeKeeper = Effect.fnUntraced(function* (options: KeeperOptions) {
  const { expected, name, node, nodes, random } = options
  const ask = makeAsk(options)
  let texts = 0
  let contents = ""
  const own: Array<string> = []

  const statusOf = (id: string) =>
    Effect.map(ask("GET", `/api/servers/${id}/status`), ({ json }) => json?.status ?? "gone")
  const becomes = (id: string, status: string) =>
    eventually(statusOf(id), (now) => now === status, ENDS_WITHIN)
  const read = (id: string) =>
    eventually(
      ask("GET", `/api/servers/${id}/files/content?path=/world/note`),
      ({ status }) => status === 200 || status === 404,
      ENDS_WITHIN
    )
  /** Waits until no operation of a server is under way, and returns them, newest first. */
  const idle = (id: string) =>
    eventually(
      Effect.map(
        ask("GET", `/api/operations?server_id=${id}&limit=100`),
        ({ json }): ReadonlyArray<OperationSeen> => json
      ),
      (all) => all.every(({ state }) => state !== "queued" && state !== "running"),
      ENDS_WITHIN
    )
  const stopped = (id: string) =>
    Effect.gen(function* () {
      yield* eventually(
        Effect.andThen(ask("POST", `/api/servers/${id}/power`, { body: { action: "kill" } }), statusOf(id)),
        (now) => now === "offline",
        ENDS_WITHIN
      )
    })

  const created = yield* ask("POST", "/api/servers", {
    body: { blueprint_id: "kept", node_id: node },
    headers: { "idempotency-key": name }
  })
  assert.strictEqual(created.status, 202, created.text)
  const id: string = created.json.id
  yield* becomes(id, "offline")
  const put = (path: string, raw: string) =>
    eventually(
      ask("PUT", `/api/servers/${id}/files/content?path=${path}`, { raw }),
      ({ status }) => status < 300,
      ENDS_WITHIN
    )
  const noise = Array.from({ length: NOISE }, () => String.fromCharCode(33 + random.below(90))).join("")
  yield* put("/world/noise", noise)

  const isIntact = Effect.fnUntraced(function* (
    what: string,
    server: string,
    ...texts: ReadonlyArray<string>
  ) {
    const { text } = yield* read(server)
    assert.include(texts, text, `${name}, ${what}`)
    return text
  })

  /** Notes the contents of the backups that were made since the last call. */
  const noted = Effect.gen(function* () {
    yield* idle(id)
    const { json } = yield* ask("GET", `/api/servers/${id}/backups?state=done&limit=100`)
    const done: ReadonlyArray<BackupSeen> = json
    for (const backup of done) {
      if (expected.has(backup.id)) continue
      expected.set(backup.id, contents)
      own.push(backup.id)
    }
  })

  const write = Effect.gen(function* () {
    const text = `text-${name}-${texts++}`
    yield* put("/world/note", text)
    contents = text
  })

  const backUp = Effect.gen(function* () {
    const begun = yield* ask("POST", `/api/servers/${id}/backups`, { body: {} })
    if (begun.status === 202 && random.below(5) === 0)
      yield* ask("DELETE", `/api/operations/${begun.json.id}`)
    yield* noted
  })

  const some = () => own[random.below(own.length)]

  const restore = Effect.gen(function* () {
    const backup_id = some()
    if (backup_id === undefined) return
    yield* stopped(id)
    const begun = yield* ask("POST", `/api/servers/${id}/restore`, {
      body: { backup_id, safety: random.below(3) === 0, mode: random.pick(["replace", "merge"] as const) }
    })
    if (begun.status === 202 && random.below(6) === 0)
      yield* ask("DELETE", `/api/operations/${begun.json.id}`)
    const operations = yield* idle(id)
    const text = expected.get(backup_id) ?? ""
    const before = contents
    const own = operations.find((one) => one.id === begun.json?.id)
    // Of a request without a response, the operation is unknown.
    const allowed = own?.state === "done" ? [text] : [before, text]
    if (own?.state === "failed") assert.fail(`${name}: restore of ${backup_id} has failed: ${own.reason}`)
    // The backup of the files before.
    yield* noted
    contents = yield* isIntact(`restore ${backup_id} (${own?.state})`, id, ...allowed)
  })

  const verify = Effect.gen(function* () {
    const backup = some()
    if (backup === undefined) return
    const begun = yield* ask("POST", `/api/backups/${backup}/verify`)
    const operations = yield* idle(id)
    const own = operations.find((one) => one.id === begun.json?.id)
    if (own !== undefined) assert.strictEqual(own.state, "done", `${name}: verify ${backup}: ${own.reason}`)
  })

  /** Deletes the server, which has run, and undeletes it. */
  const bounce = Effect.gen(function* () {
    yield* eventually(
      Effect.andThen(ask("POST", `/api/servers/${id}/power`, { body: { action: "start" } }), statusOf(id)),
      (now) => now === "running",
      ENDS_WITHIN
    )
    yield* eventually(ask("DELETE", `/api/servers/${id}`), ({ status }) => status === 200 || status === 404)
    const back = yield* eventually(
      Effect.flatMap(ask("POST", `/api/servers/${id}/undelete`), (answer) =>
        Effect.map(ask("GET", `/api/servers/${id}`), (found) => ({ answer, found }))
      ),
      ({ answer, found }) => answer.status === 202 || answer.status === 404 || found.status === 200,
      ENDS_WITHIN
    )
    assert.strictEqual(back.found.status, 200, `${name}: undelete: ${back.answer.text}`)
    yield* isIntact("undelete", id, contents)
  })

  /** Makes another server of a backup, and removes it. */
  const another = Effect.gen(function* () {
    const backup = some()
    if (backup === undefined) return
    const made = yield* ask("POST", "/api/servers", {
      body: { blueprint_id: "kept", node_id: random.pick(nodes), from_backup: backup, name: `${name}-copy` },
      headers: { "idempotency-key": `${name}-${texts++}` }
    })
    assert.strictEqual(made.status, 202, made.text)
    const operations = yield* idle(made.json.id)
    const [own] = operations
    assert.strictEqual(own?.state, "done", `${name}: ${made.json.id} from ${backup}: ${own?.reason}`)
    yield* isIntact(`from ${backup}`, made.json.id, expected.get(backup) ?? "")
    yield* eventually(
      ask("DELETE", `/api/servers/${made.json.id}?purge=true`),
      ({ status }) => status === 200 || status === 404
    )
  })

  yield* write
  const act = Effect.suspend((): Effect.Effect<void, unknown> => {
    const what = random.below(10)
    if (what < 2) return write
    if (what < 5) return backUp
    if (what < 7) return restore
    if (what < 8) return verify
    return what < 9 ? bounce : another
  })
  return {
    id,
    act,
    /** Asserts that the files are as the last acknowledged action has left them. */
    check: Effect.suspend(() => isIntact("at the end", id, contents)),
    idle: noted
  }
})
