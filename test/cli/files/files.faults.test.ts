import { createHash } from "node:crypto"
import { mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { cells, muster } from "../../support/command.ts"
import { textOf } from "../../support/docs.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { zip } from "../../support/zip.ts"
import { done, environment, onTerminal, refused, run } from "../support.ts"

const demo = Muster.layer(
  {
    software: { "demo.yml": textOf("software/demo.yml") },
    blueprints: {
      "saved.yml": textOf("blueprints/demo-saved.yml")
        .replace("id: demo-saved", "id: saved")
        .replace("  configs:\n", `  configs:\n    server.xml: { parser: xml, find: { "a.b[@c='d']": x } }\n`),
      "mixins/defaults.yml": textOf("blueprints/mixins/defaults.yml")
    }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26400-26420" }
)

const create = (name: string, ...more: ReadonlyArray<string>) =>
  Effect.tap(done("servers", "create", "saved", "--name", name, "-o", "id", ...more), (id) =>
    done("servers", "wait", id, "--for", "installed")
  )

/** What a transfer says, but that the command of the tests has no folder for its notes. */
const said = (text: string) => text.replace(/^a later command cannot continue: .*\n/, "")

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex")

layer(demo, { excludeTestServices: true, timeout: "60 seconds" })("muster files", (it) => {
  describe("spec 8.7", () => {
    it.effect(
      "files go up, are listed, changed and found, and come down with the same bytes and permissions",
      () =>
        Effect.gen(function* () {
          yield* create("lobby")
          const folder = yield* temporaryFolder
          const local = join(folder, "plugins")
          mkdirSync(join(local, "Chat"), { recursive: true })
          const big = Buffer.from(Array.from({ length: 3_000_000 }, (_, at) => (at * 7) % 253))
          writeFileSync(join(local, "Chat.jar"), big)
          writeFileSync(join(local, "Chat/config.yml"), "greeting: hello\n")
          writeFileSync(join(local, "run.sh"), "#!/bin/sh\n", { mode: 0o755 })
          const put = yield* run("files", "put", "-r", local, "lobby:")
          assert.deepStrictEqual([put.code, said(put.stderr)], [0, "3 files uploaded (2.9 MiB)\n"])

          const listed = cells(yield* done("files", "ls", "lobby:plugins"))
          assert.deepStrictEqual(
            listed.map(([name, type, size]) => [name, type, size]),
            [
              ["NAME", "TYPE", "SIZE"],
              ["Chat/", "folder", "-"],
              ["Chat.jar", "file", "2.9 MiB"],
              ["run.sh", "file", "10 B"]
            ]
          )
          const [program] = JSON.parse(yield* done("files", "ls", "lobby:/plugins/run.sh", "--json"))
          assert.deepInclude(program, { name: "run.sh", type: "file", mode: "0755", layer: "server" })
          assert.match(yield* done("files", "ls", "-l", "lobby"), /^NAME .*MODE +LAYER +WRITABLE/)
          assert.strictEqual(yield* done("files", "cat", "lobby:plugins/Chat/config.yml"), "greeting: hello")

          assert.strictEqual(
            yield* done("files", "mv", "lobby:/plugins/Chat/config.yml", "/plugins/Chat/old.yml"),
            "moved to /plugins/Chat/old.yml"
          )
          yield* done("files", "cp", "-r", "lobby:/plugins/Chat", "/plugins/Copy")
          yield* done("files", "mkdir", "lobby:/plugins/Empty/Inner")
          yield* done("files", "chmod", "600", "lobby:/plugins/Copy/old.yml")
          const [copy] = JSON.parse(yield* done("files", "ls", "lobby:/plugins/Copy", "--json"))
          assert.deepInclude(copy, { name: "old.yml", mode: "0600" })
          const down = join(folder, "down")
          const get = yield* run("files", "get", "-r", "lobby:/plugins", down)
          assert.deepStrictEqual([get.code, said(get.stderr)], [0, "4 files downloaded (2.9 MiB)\n"])
          assert.strictEqual(sha256(readFileSync(join(down, "Chat.jar"))), sha256(big))
          assert.strictEqual(statSync(join(down, "run.sh")).mode & 0o777, 0o755)
          assert.isTrue(statSync(join(down, "Empty/Inner")).isDirectory())

          assert.match(
            yield* refused(64, "files", "rm", "lobby:/plugins/Copy", "--yes"),
            /is a folder: add -r\.$/
          )
          assert.match(
            yield* refused(64, "files", "rm", "-r", "lobby:/plugins/Copy"),
            /Repeat the command with --yes/
          )
          assert.strictEqual(
            yield* done("files", "rm", "-r", "--yes", "lobby:/plugins/Copy", "lobby:/plugins/run.sh"),
            "/plugins/Copy is deleted\n/plugins/run.sh is deleted"
          )
        }).pipe(Effect.scoped)
    )

    it.effect("keys that the next start writes again are named once a command has written their file", () =>
      Effect.gen(function* () {
        const id = yield* create("managed")
        const folder = yield* temporaryFolder
        const local = join(folder, "server.properties")
        writeFileSync(local, "motd=Mine\n")
        writeFileSync(join(folder, "other.txt"), "x")
        const warning = `/server.properties: The next start writes these keys again: server-id, motd, max-players. To change one for good: \`muster servers patch ${id} --set 'configs[server.properties].find.server-id=VALUE'\`.\n`
        const put = yield* run("files", "put", local, "managed:")
        assert.deepStrictEqual([put.code, put.stderr], [0, warning])
        const all = yield* run("files", "put", "-r", `${folder}/.`, "managed:/")
        assert.deepStrictEqual([all.code, said(all.stderr)], [0, `2 files uploaded (11 B)\n${warning}`])
        writeFileSync(join(folder, "plain.xml"), "<a/>")
        const xml = yield* run("files", "put", join(folder, "plain.xml"), "managed:server.xml")
        assert.strictEqual(
          xml.stderr,
          "/server.xml: The next start writes these keys again: a.b[@c='d']. To change one for good: change `configs` of its blueprint.\n"
        )
        const plain = yield* run("files", "put", join(folder, "other.txt"), "managed:")
        assert.strictEqual(plain.stderr, "")
        const edited = yield* muster(["files", "edit", "managed:server.properties"], {
          ...(yield* environment),
          EDITOR: "echo motd=Again >"
        })
        assert.deepStrictEqual(edited, {
          code: 0,
          stdout: "/server.properties is changed\n",
          stderr: warning
        })
      }).pipe(Effect.scoped)
    )

    it.effect("files without room have their reasons, and one hint for all", () =>
      Effect.gen(function* () {
        const id = yield* create("full", "--set", "limits.disk_space=2")
        const folder = yield* temporaryFolder
        const names = ["a.bin", "b.bin", "c.bin"]
        for (const name of names) writeFileSync(join(folder, name), Buffer.alloc(3_000_000))
        writeFileSync(join(folder, "small.txt"), "x")
        const { code, stderr } = yield* run("files", "put", "-r", `${folder}/.`, "full:/")
        assert.strictEqual(code, 1)
        for (const name of names) assert.match(stderr, new RegExp(`/${name}: disk: .+ MB .+ needed\\.`))
        assert.strictEqual(stderr.split("Delete files, or raise the limit").length, 2, stderr)
        assert.match(stderr, /^1 file uploaded \(1 B\), 3 failed$/m)
        yield* done("servers", "delete", id, "--yes", "--purge")
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a list with -r has all below a folder by its path, and the sum; a pack replaces an archive with --force only",
      () =>
        Effect.gen(function* () {
          yield* create("deep")
          const folder = yield* temporaryFolder
          mkdirSync(join(folder, "a/b/c"), { recursive: true })
          writeFileSync(join(folder, "a/b/c/one"), "12345")
          writeFileSync(join(folder, "a/two"), "678")
          yield* run("files", "put", "-r", join(folder, "a"), "deep:/")
          const listed = yield* run("files", "ls", "-r", "-o", "id", "deep:/a")
          assert.strictEqual(listed.stdout, "b\nb/c\nb/c/one\ntwo\n")
          assert.strictEqual(listed.stderr, "2 files in 2 folders, 8 B.\n")
          assert.include(yield* done("files", "pack", "deep:/a", "/a.zip"), "files.pack is done: 8 B of 8 B")
          assert.strictEqual(
            yield* refused(2, "files", "pack", "deep:/a", "/a.zip"),
            "/a.zip: it exists. Add `--force`, or choose another name."
          )
          yield* done("files", "pack", "--force", "deep:/a/b", "/a.zip")
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect("local paths begin in the folder of the user, also if `npm run muster` runs elsewhere", () =>
      Effect.gen(function* () {
        yield* create("relative")
        const folder = yield* temporaryFolder
        writeFileSync(join(folder, "note.txt"), "note")
        const { key, url } = yield* Muster
        const byNpm = (...args: ReadonlyArray<string>) =>
          muster(["files", ...args], {
            MUSTER_URL: url,
            MUSTER_API_KEY: key,
            INIT_CWD: folder,
            npm_lifecycle_event: "muster"
          })
        const put = yield* byNpm("put", "note.txt", "relative:/")
        assert.strictEqual(put.code, 0, put.stderr)
        const get = yield* byNpm("get", "relative:/note.txt", "copy.txt")
        assert.strictEqual(get.code, 0, get.stderr)
        assert.strictEqual(readFileSync(join(folder, "copy.txt"), "utf8"), "note")
      }).pipe(Effect.scoped)
    )

    it.effect(
      "many changes are an operation, whose end the command awaits (spec 11.2)",
      () =>
        Effect.gen(function* () {
          const id = yield* create("large")
          yield* done("files", "mkdir", "large:/empty")
          const copies = Array.from({ length: 1_010 }, (_, n) => ({ from: "/empty", to: `/many/f${n}` }))
          const api = yield* Muster
          const path = `/api/servers/${id}/files/copy`
          const { json: made } = yield* expectStatus(api, 202, "POST", path, { body: { copies } })
          yield* done("operations", "wait", made.id)
          const copied = yield* run("files", "cp", "-r", "large:/many", "/copy/")
          assert.deepStrictEqual(
            [copied.code, copied.stdout],
            [0, "files.change is done: 1011 of 1011 files\n"]
          )
          const operation = /^Operation (\S+) does the work;/.exec(copied.stderr)?.[1] ?? ""
          const twice = yield* run("files", "cp", "-r", "large:/many", "/copy/")
          assert.deepStrictEqual([twice.code, twice.stdout], [1, ""])
          assert.match(twice.stderr, /operation \S+ has failed: 1 of 1 changes were refused; .*it exists/)
          assert.match(
            yield* done("files", "rm", "-r", "--yes", "large:/many", "large:/copy"),
            /^files\.change is done/
          )
          assert.notMatch(yield* done("files", "ls", "large:/", "-o", "id"), /^(?:many|copy)$/m)

          const ids = yield* done("operations", "list", "--server", "large", "--state", "done", "-o", "id")
          assert.include(ids.split("\n"), operation)
          assert.strictEqual(yield* done("operations", "list", "--server", id, "--kind", "files.pack"), "")
          assert.match(yield* done("operations", "show", operation), /^state: +done$/m)
          assert.strictEqual(yield* done("operations", "wait", operation, "-o", "id"), operation)
          assert.match(yield* refused(2, "operations", "cancel", operation), /^operation is done: /)
          assert.match(yield* refused(3, "operations", "show", "none"), /^operation not found: none/)
        }).pipe(Effect.scoped),
      480_000
    )

    it.effect("files are packed into an archive of the server", () =>
      Effect.gen(function* () {
        yield* create("packed")
        yield* done("files", "mkdir", "packed:/world/region")
        assert.match(
          yield* done("files", "pack", "packed:/world", "/world.tar.gz"),
          /^files\.pack is done: 0 B$/
        )
        assert.match(yield* refused(2, "files", "pack", "packed:/world", "/world.tar.gz"), /it exists/)
        assert.match(
          yield* refused(64, "files", "pack", "packed:/world", "/world.rar"),
          /no name of an archive/
        )
        assert.match(yield* refused(64, "files", "pack", "packed:/world", "large:/a.zip"), /one server/)

        const unpacked = yield* done("files", "unpack", "packed:/world.tar.gz", "/other")
        assert.match(unpacked, /^files\.unpack is done: \d+ B of \d+ B$/)
        assert.match(yield* done("files", "ls", "packed:/other/world", "-o", "id"), /^region\/?$/m)
        const folder = yield* temporaryFolder
        const local = join(folder, "local.zip")
        writeFileSync(local, zip([{ name: "a.txt", content: "a\n" }]))
        assert.match(yield* done("files", "put", "--unpack", local, "packed:/sent"), /^files\.unpack is done/)
        assert.strictEqual(yield* done("files", "cat", "packed:/sent/a.txt"), "a")
        assert.match(
          yield* refused(1, "files", "put", "--unpack", local, "packed:/sent"),
          /\/sent\/a.txt: it exists/
        )
        yield* done("files", "put", "--unpack", "--overwrite", "skip", local, "packed:/sent")
        for (const overwrite of ["fail", "skip"])
          assert.match(
            yield* refused(64, "files", "put", "--overwrite", overwrite, local, "packed:/b"),
            /--unpack/
          )
        assert.match(yield* refused(3, "files", "unpack", "packed:/none.zip"), /no such (?:path|file)/)
      }).pipe(Effect.scoped)
    )

    it.effect("a copy goes to another server, and a text to all that a selector finds", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const [one, two] = [
          yield* create("one", "--label", "game=x"),
          yield* create("two", "--label", "game=x")
        ]
        writeFileSync(join(folder, "motd.txt"), "welcome\n")
        const many = ["put", "--selector", "label=game=x", join(folder, "motd.txt"), "/motd.txt"]
        assert.match(yield* refused(64, "files", ...many), /Write \/motd\.txt on 2 servers/)
        const written = yield* done("files", ...many, "--yes")
        assert.sameMembers(written.split("\n"), [`${one} has /motd.txt`, `${two} has /motd.txt`])
        yield* done("files", "cp", "one:/motd.txt", "two:/copied.txt")
        assert.strictEqual(
          yield* done("files", "cat", "two:/motd.txt", "two:/copied.txt"),
          "welcome\nwelcome"
        )
        yield* done("files", "cp", "two:/copied.txt", "/all.txt", "--selector", "label=game=x", "--yes")
        assert.strictEqual(yield* done("files", "cat", `${one}:/all.txt`), "welcome")
      }).pipe(Effect.scoped)
    )

    it.effect("files are found by name and by text, and what the server has written is listed", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const id = yield* create("found")
        writeFileSync(join(folder, "a.yml"), "first: 1\nGreeting: hello\n")
        writeFileSync(join(folder, "b.txt"), "hello\n")
        yield* done("files", "put", join(folder, "a.yml"), join(folder, "b.txt"), `${id}:/config/`)
        const [match] = JSON.parse(
          yield* done("files", "find", id, "--text", "greeting", "--name", "*.yml", "--json")
        )
        assert.deepInclude(match, { path: "/config/a.yml", line: 2 })
        const named = yield* done("files", "find", `${id}:/config`, "--name", "*.txt", "-o", "id")
        assert.strictEqual(named, "/config/b.txt")
        const none = yield* run("files", "find", id, "--text", "greeting", "--case")
        assert.deepStrictEqual([none.code, none.stdout, none.stderr], [0, "", "Nothing was found.\n"])
        assert.match(yield* refused(64, "files", "find", id), /--name GLOB, --text TEXT/)
        const written = cells(yield* done("files", "diff", `${id}:/config`))
        assert.includeDeepMembers([...written], [["added", "/config/a.yml", "25 B"]])
        assert.notInclude(yield* done("files", "diff", `${id}:/config/a.yml`), "b.txt")
      }).pipe(Effect.scoped)
    )

    it.effect("exit statuses are those of spec 8.3", () =>
      Effect.gen(function* () {
        const id = yield* create("statuses")
        yield* done("files", "mkdir", `${id}:/there`)
        assert.match(yield* refused(3, "files", "ls", "no-such-server:/"), /no-such-server/)
        assert.include(yield* refused(3, "files", "cat", `${id}:/nope`), "/nope")
        assert.include(yield* refused(3, "files", "ls", `${id}:/nope/deeper`), "/nope/deeper")
        assert.include(yield* refused(2, "files", "cat", `${id}:/there`), "/there")
        yield* done("files", "cp", "-r", `${id}:/there`, "/into/")
        assert.include(yield* refused(2, "files", "cp", "-r", `${id}:/there`, "/into/"), "/into/there")
        const api = yield* Muster
        const reader = ["keys", "create", "--name", "files-reader", "--scope", "ReadOnly"]
        const made = yield* muster(reader, { MUSTER_DATA_DIR: api.dataDir })
        const env = { MUSTER_URL: api.url, MUSTER_API_KEY: made.stdout.trim() }
        const { code, stderr } = yield* muster(["files", "ls", id], env)
        assert.strictEqual(code, 4, stderr)
        assert.include(stderr, "--allow browse")
      })
    )

    it.effect("on a terminal, a transfer shows its progress, and a file that is no text is refused", () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const id = yield* create("terminal", "--set", "limits.disk_space=1000")
        const file = join(folder, "big.bin")
        writeFileSync(file, Buffer.alloc(200_000_000))
        const put = yield* onTerminal("files", "put", file, `${id}:/`)
        yield* put.prints(/\/big\.bin {2}.*of 191 MiB {2}\d+% {2}.*\/s/)
        assert.strictEqual(yield* put.exited("60 seconds"), 0, put.output())
        mkdirSync(join(folder, "many"))
        for (const name of ["a", "b", "c"]) {
          writeFileSync(join(folder, "many", name), "")
          truncateSync(join(folder, "many", name), 100_000_000)
        }
        const both = /\d of 3 files {2}.*of 286 MiB {2}\d+% {2}/
        const putAll = yield* onTerminal("files", "put", "-r", join(folder, "many"), `${id}:/`)
        yield* putAll.prints(both)
        assert.strictEqual(yield* putAll.exited("60 seconds"), 0, putAll.output())
        const getAll = yield* onTerminal("files", "get", "-r", `${id}:/many`, join(folder, "back"))
        yield* getAll.prints(both)
        assert.strictEqual(yield* getAll.exited("60 seconds"), 0, getAll.output())
        const cat = yield* onTerminal("files", "cat", `${id}:/big.bin`)
        assert.strictEqual(yield* cat.exited(), 1)
        assert.include(cat.output(), "/big.bin is no text: add --force")
        yield* run("files", "rm", `${id}:/big.bin`, "--yes")
      }).pipe(Effect.scoped)
    )
  })
})
