import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync, truncateSync } from "node:fs"
import { createServer, type ServerResponse } from "node:http"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { scene } from "../controlPlane/http/support/files.ts"
import { options, service } from "../controlPlane/http/support/http.ts"
import { muster } from "../support/command.ts"
import { eventually } from "../support/eventually.ts"
import { becomes, expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { done, refused, run } from "./support.ts"

/** A server with a file and a name of its own. */
const world = Effect.fnUntraced(function* (name: string) {
  const { api, files, id } = yield* scene("embedded")
  yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { name } })
  assert.strictEqual((yield* files.put("/world/level.dat", "level")).status, 201)
  return { api, files, id }
})

layer(service(), options)("muster backups", (it) => {
  describe("spec 8, 12: backups", () => {
    it.effect("create waits for the backup and prints it; list, show, verify, pin and delete find it", () =>
      Effect.gen(function* () {
        const { api, id: server } = yield* world("kept")
        const made = yield* done(
          ...["backups", "create", "kept", "--name", "before the event", "--label", "tier=gold"],
          ...["--expires", "7d"]
        )
        assert.match(made, /^state: +done$/m)
        assert.match(made, /^consistency: +stopped$/m)
        assert.match(made, /^kept: +until \S+Z$/m)
        const id = yield* done("backups", "list", "--server", "kept", "-o", "id")
        const shown = JSON.parse(yield* done("backups", "show", "kept:latest", "--json"))
        assert.deepInclude(shown, { id, server_id: server, labels: { tier: "gold" } })
        for (const text of [
          id,
          id.slice(0, 8),
          "before the event",
          "kept:before the event",
          `${server}:latest`
        ])
          assert.strictEqual(yield* done("backups", "show", text, "-o", "id"), id)
        assert.strictEqual(
          yield* done(
            "backups",
            "list",
            "--label",
            "tier=gold",
            "--target",
            "node",
            "--since",
            "1h",
            "-o",
            "id"
          ),
          id
        )
        assert.strictEqual(
          yield* done("backups", "list", "--server", "kept", "--state", "failed", "-o", "id"),
          ""
        )
        assert.match(yield* done("backups", "verify", id), /^backup\.verify is done: /)
        assert.match(
          yield* done("backups", "drill", id, "--wait", "-o", "json"),
          /"drill": *\{[^}]*"ok": *true/
        )
        const drill = yield* done("backups", "drill", "kept:latest", "-o", "id")
        yield* done("operations", "wait", drill)
        assert.match(yield* done("backups", "pin", "kept:latest"), /^kept: +pinned$/m)
        assert.match(yield* done("backups", "unpin", id), /^kept: +until \S+Z$/m)
        assert.include(yield* refused(64, "backups", "delete", id), `Delete ${id} of kept, `)
        assert.strictEqual(yield* done("backups", "delete", "kept:latest", "--yes"), `${id} is deleted`)
        yield* expectStatus(api, 404, "GET", `/api/backups/${id}`)
        assert.include(yield* refused(3, "backups", "show", id), "`muster backups list` lists what exists.")
      })
    )

    it.effect("list shows a damaged backup with the reason, and latest is the newest good one", () =>
      Effect.gen(function* () {
        const { api } = yield* world("hurt")
        const good = yield* done("backups", "create", "hurt", "-o", "id")
        const id = yield* done("backups", "create", "hurt", "-o", "id")
        truncateSync(join(api.dataDir, "node/backups", id, "part-00001"), 10)
        yield* refused(1, "backups", "verify", id)
        const listed = yield* done("backups", "list", "--server", "hurt")
        assert.match(listed, new RegExp(`^${id} .* damaged .*part-00001 is damaged: it has 10 of`, "m"))
        assert.match(yield* done("backups", "show", id), /^state: +damaged$/m)
        assert.strictEqual(yield* done("backups", "show", "hurt:latest", "-o", "id"), good)
      })
    )

    it.effect("create backs up several servers, or those of a selector, and prints each", () =>
      Effect.gen(function* () {
        const [one, two] = [(yield* world("many-1")).id, (yield* world("many-2")).id]
        for (const id of [one, two]) yield* done("servers", "patch", id, "--label", "group=many")
        const lines = [one, two].map((id) => `${id} is being backed up`).toSorted()
        const sorted = (text: string) => text.split("\n").toSorted()
        const selected = yield* done("backups", "create", "--selector", "label=group=many", "--name", "all")
        assert.deepStrictEqual(sorted(selected), lines)
        for (const id of [one, two])
          yield* eventually(run("backups", "show", `${id}:latest`, "--json"), ({ stdout }) =>
            stdout.includes('"done"')
          )
        assert.deepStrictEqual(sorted(yield* done("backups", "create", "many-1", "many-2")), lines)
        const named = yield* refused(64, "backups", "create", "--selector", "server=many-1")
        assert.include(named, "it begins with one of label=, blueprint=, node= and status=.")
        assert.include(named, "Name single servers without --selector.")
        assert.include(yield* refused(64, "backups", "create"), "Name servers by id or name")
      })
    )

    it.effect("create --background prints the backup before it is done", () =>
      Effect.gen(function* () {
        const { id: server } = yield* world("busy")
        const id = yield* done("backups", "create", "busy", "--background", "-o", "id")
        const { operation_id } = JSON.parse(yield* done("backups", "show", id, "--json"))
        yield* done("operations", "wait", operation_id)
        assert.strictEqual(yield* done("backups", "show", `${server}:latest`, "-o", "id"), id)
      })
    )

    it.effect(
      "restore gives a server the files of a backup, after a backup of its own; it must be offline",
      () =>
        Effect.gen(function* () {
          const { api, files, id: server } = yield* world("restored")
          const id = yield* done("backups", "create", "restored", "--name", "old", "-o", "id")
          yield* files.put("/world/level.dat", "new")
          const from = ["servers", "restore", "restored", "--from", "latest"]
          assert.include(
            yield* refused(64, ...from),
            "Replace all files of restored by those of the backup old, "
          )
          const plan = yield* done(...from, "--dry-run")
          assert.match(plan, /changed: +1 \(5 B\): \/world\/level\.dat/)
          assert.match(plan, /backed up first: +before old/)
          assert.notMatch(plan, /definition:/)
          assert.match(yield* done(...from, "--dry-run", "--definition"), /definition: +none/)
          assert.strictEqual((yield* files.get("/world/level.dat")).text, "new")
          assert.match(yield* done(...from, "--yes"), /^backup\.restore is done/)
          assert.strictEqual((yield* files.get("/world/level.dat")).text, "level")
          assert.strictEqual(
            yield* done("backups", "list", "--server", "restored", "--limit", "1", "-o", "id"),
            yield* done("backups", "show", "restored:before old", "-o", "id")
          )
          yield* done(
            "servers",
            "restore",
            "restored",
            "--from",
            "before old",
            "--no-safety",
            "--start",
            "--yes"
          )
          assert.strictEqual((yield* files.get("/world/level.dat")).text, "new")
          yield* becomes(api, server, "running")
          const why = yield* refused(2, "backups", "restore", id, "--yes")
          assert.include(why, `server is running: ${server}`)
          assert.include(why, `\`muster servers stop ${server}\``)
        })
    )

    it.effect("restore --path changes only these paths; --merge lets files stay that the backup lacks", () =>
      Effect.gen(function* () {
        const { files } = yield* world("partly")
        yield* files.put("/ops.json", "old")
        yield* done("backups", "create", "partly", "--name", "old", "-o", "id")
        const change = Effect.forEach(["/world/level.dat", "/world/late.dat", "/ops.json"], (path) =>
          files.put(path, "new")
        )
        const contents = Effect.forEach(["/world/level.dat", "/world/late.dat", "/ops.json"], (path) =>
          Effect.map(files.get(path), ({ status, text }) => (status === 404 ? "absent" : text))
        )
        const restore = ["backups", "restore", "partly:old", "--no-safety"]
        yield* change
        assert.include(
          yield* refused(64, ...restore, "--path", "/world", "--path", "/ops.json", "--merge"),
          "Replace /world, /ops.json of partly by those of the backup old, "
        )
        assert.include(yield* refused(64, ...restore, "--path", "world", "--yes"), "does not begin with /")
        yield* done(...restore, "--path", "/world", "--merge", "--yes")
        assert.deepStrictEqual(yield* contents, ["level", "new", "new"])
        yield* done(...restore, "--path", "/world", "--yes")
        assert.deepStrictEqual(yield* contents, ["level", "absent", "new"])
        yield* change
        yield* done("servers", "restore", "partly", "--from", "old", "--no-safety", "--merge", "--yes")
        assert.deepStrictEqual(yield* contents, ["level", "new", "old"])
      })
    )

    it.effect(
      "servers create --from-backup makes another server, whose blueprint, name and files are its own",
      () =>
        Effect.gen(function* () {
          const { api, id: server } = yield* world("first")
          yield* done("backups", "create", "first", "-o", "id")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}`)
          assert.include(yield* refused(64, "servers", "create", "--name", "none"), "--from-backup")
          const create = ["servers", "create", "--from-backup", `${server}:latest`, "--name", "second"]
          const id = yield* done(...create, "--wait", "-o", "id")
          assert.notStrictEqual(id, server)
          assert.strictEqual(yield* done("files", "cat", `${id}:/world/level.dat`), "level")
          const made = JSON.parse(yield* done("servers", "show", "second", "--json"))
          assert.deepInclude(made, { id, blueprint_id: "kept", name: "second" })
        })
    )

    it.effect("the latest backup is of a server, and must be good", () =>
      Effect.gen(function* () {
        yield* world("bare")
        assert.include(yield* refused(64, "backups", "show", "latest"), "SERVER:latest")
        assert.include(
          yield* refused(3, "backups", "get", "bare:latest"),
          "no good backup of bare. `muster backups list --server bare` shows all of them."
        )
      })
    )

    it.effect(
      "spec 12.12: create --kind written stores what the server has written; get has all files, and a drill runs",
      () =>
        Effect.gen(function* () {
          yield* world("written")
          const id = yield* done("backups", "create", "written", "--kind", "written", "-o", "id")
          const shown = JSON.parse(yield* done("backups", "show", id, "--json"))
          assert.strictEqual(shown.kind, "written")
          const archive = join(yield* temporaryFolder, "written.tar.zst")
          assert.include(
            yield* done("backups", "get", id, archive),
            "the node has compared each file with its own while it was sent"
          )
          const listed = execFileSync("tar", ["--zstd", "-tf", archive]).toString().split("\n")
          assert.include(listed, "./world/level.dat")
          assert.include(listed, "./server.sh")
          assert.isAbove(shown.size_bytes, 0)
          assert.match(yield* done("backups", "drill", id, "--wait", "-o", "json"), /"ok": *true/)
        })
    )

    it.effect(
      "get writes the whole archive into a folder, a file or standard output, also of a deleted server",
      () =>
        Effect.gen(function* () {
          const { api, id: server } = yield* world("gone")
          const id = yield* done("backups", "create", "gone", "--kind", "full", "-o", "id")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}`)
          const folder = yield* temporaryFolder
          const { sha256 } = JSON.parse(yield* done("backups", "show", `${server}:latest`, "--json"))
          const names = [join(folder, `${server}-${id}.tar.zst`), join(folder, "world.tar.zst")]
          yield* done("backups", "get", id, folder)
          assert.include(
            yield* done("backups", "get", id, names[1] ?? ""),
            `world.tar.zst has the backup ${id} (`
          )
          for (const name of names)
            assert.strictEqual(createHash("sha256").update(readFileSync(name)).digest("hex"), sha256)
          execFileSync("tar", ["--zstd", "-xf", names[0] ?? "", "-C", folder])
          assert.strictEqual(readFileSync(join(folder, "world/level.dat"), "utf8"), "level")
          const { code } = yield* run("backups", "get", id, "-")
          assert.strictEqual(code, 0)
          assert.strictEqual(yield* done("backups", "files", id, "/world", "-o", "id"), "level.dat")
          assert.include(yield* done("backups", "files", id), "world/")
          const one = join(folder, "level.dat")
          const got = yield* done("backups", "get", id, one, "--path", "/world/level.dat")
          assert.include(got, `${one} has /world/level.dat of the backup ${id}.`)
          assert.strictEqual(readFileSync(one, "utf8"), "level")
          const folderOf = yield* run("backups", "get", id, folder, "--path", "/world")
          assert.include(folderOf.stderr, "/world is a folder")
        })
    )
  })
})

/** A service whose backup has other bytes than its digest says, and whose connection may break. */
const damagedService = (bytes: Buffer, announced: number) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly close: () => void }>((resume) => {
      const backup = {
        ...{
          id: "5hq1r0p9v2m8d4kx",
          server_id: "k7f3m1x9q2ab",
          blueprint_id: "b",
          labels: {},
          state: "done"
        },
        ...{ kind: "full", target: "node", node_id: "n", operation_id: "o", files: 1, changed_files: 0 },
        ...{ size_bytes: 5, stored_bytes: announced, sha256: "0".repeat(64), consistency: "stopped" },
        ...{ pinned: false, created_at: "2026-01-31T12:00:00.000Z" }
      }
      const json = (response: ServerResponse, value: unknown) =>
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value))
      const server = createServer((request, response) => {
        if (request.url?.endsWith("/archive") !== true)
          return json(response, request.url?.includes(backup.id) === true ? backup : [backup])
        response.writeHead(200, { "content-type": "application/octet-stream", "content-length": announced })
        return response.write(bytes, () => response.socket?.end())
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        resume(
          Effect.succeed({
            url: `http://127.0.0.1:${port}`,
            close: () => {
              server.closeAllConnections()
              server.close()
            }
          })
        )
      })
    }),
    ({ close }) => Effect.sync(close)
  )

describe("spec 12.3: a download that is not the backup", () => {
  it.live.each([
    ["other bytes", 5, "the SHA-256 of the download is "],
    [
      "a broken connection",
      50,
      "the download was broken off after 5 bytes: the backup may be damaged. `muster backups verify 5hq1r0p9v2m8d4kx` names a damaged part"
    ]
  ] as const)(
    "%s: the command fails, the earlier file stays, and no part of the download",
    ([, announced, why]) =>
      Effect.gen(function* () {
        const { url } = yield* damagedService(Buffer.from("other"), announced)
        const folder = yield* temporaryFolder
        const { code, stderr } = yield* muster(["backups", "get", "5hq1", join(folder, "a.tar.zst")], {
          MUSTER_URL: url,
          MUSTER_API_KEY: "x"
        })
        assert.notStrictEqual(code, 0)
        assert.include(stderr, why)
        assert.deepStrictEqual(readdirSync(folder), [])
        assert.isFalse(existsSync(join(folder, "a.tar.zst")))
      }).pipe(Effect.scoped)
  )
})
