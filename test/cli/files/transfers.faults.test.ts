import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { cells } from "../../support/command.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { fakeFiles } from "./support.ts"

const BIG = Buffer.from(Array.from({ length: 400_000 }, (_, at) => at % 251))

describe("spec 8.7: muster files get", () => {
  it.live(
    "a download resumes after broken connections, arrives beside its place, and has the permissions",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const { asked, run } = yield* fakeFiles({
          folders: { "/": [{ name: "start.sh", mode: "0755" }] },
          contents: { "/start.sh": BIG },
          breaks: [100_000, 100_000]
        })
        writeFileSync(join(folder, "start.sh"), "old")
        const { code, stderr } = yield* run(["get", "lobby:start.sh", folder])
        assert.deepStrictEqual([code, stderr], [0, ""])
        assert.isTrue(readFileSync(join(folder, "start.sh")).equals(BIG))
        assert.deepStrictEqual(readdirSync(folder), ["start.sh"])
        assert.strictEqual(statSync(join(folder, "start.sh")).mode & 0o700, 0o700)
        assert.strictEqual(asked.filter((request) => request.startsWith("GET /content")).length, 3)
      }).pipe(Effect.scoped)
  )

  it.live("a download that fails leaves the earlier file and nothing else; a missing file is status 3", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const { run } = yield* fakeFiles({
        folders: { "/": [{ name: "a" }] },
        contents: { "/a": BIG },
        breaks: [10, 0, 0, 0, 0, 0, 0]
      })
      writeFileSync(join(folder, "a"), "old")
      const broken = yield* run(["get", "lobby:a", folder])
      assert.strictEqual(broken.code, 5, broken.stderr)
      assert.deepStrictEqual(readdirSync(folder), ["a"])
      assert.strictEqual(readFileSync(join(folder, "a"), "utf8"), "old")
      const missing = yield* run(["get", "lobby:/b", folder])
      assert.deepStrictEqual([missing.code, missing.stdout], [3, ""])
      assert.include(missing.stderr, "no such file or folder: /b")
    }).pipe(Effect.scoped)
  )

  it.live(
    "a folder arrives whole, page by page; links and others are left out, hostile names are reported",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        const target = join(folder, "world")
        const { run } = yield* fakeFiles({
          pageSize: 3,
          folders: {
            "/": [{ name: "world", type: "folder" }],
            "/world": [
              { name: "../../escaped" },
              { name: "..", type: "folder" },
              { name: "/etc/passwd" },
              { name: "a.dat" },
              { name: "b%FF.dat" },
              { name: "empty", type: "folder" },
              { name: "fifo", type: "other" },
              { name: "link", type: "link", target: "/etc" },
              { name: "nul\0.dat" },
              { name: "region", type: "folder" }
            ],
            "/world/empty": [],
            "/world/region": [{ name: "r.0.0.mca" }]
          },
          contents: {
            "/world/a.dat": Buffer.from("a"),
            "/world/b%FF.dat": Buffer.from("b"),
            "/world/region/r.0.0.mca": BIG
          }
        })
        const { code, stderr, stdout } = yield* run(["get", "-r", "lobby:world", target])
        assert.deepStrictEqual([code, stdout], [1, ""], stderr)
        assert.deepStrictEqual(
          readdirSync(target, { encoding: "buffer" })
            .map((name) => name.toString("latin1"))
            .toSorted(),
          ["a.dat", "b\u00ff.dat", "empty", "region"]
        )
        assert.isTrue(readFileSync(join(target, "region/r.0.0.mca")).equals(BIG))
        assert.deepStrictEqual(readdirSync(folder), ["world"])
        assert.include(stderr, "/world/link is left out: a link to /etc, which is not followed")
        assert.include(stderr, "/world/fifo is left out: a pipe, a socket or a device")
        assert.include(stderr, "/world/..: it is no name of a file")
        assert.include(stderr, "/world/../../escaped: a name has no slash")
        assert.include(stderr, "a name has no NUL")
        assert.include(stderr, "3 files downloaded (391 KiB), 2 left out, 4 failed")
        const again = yield* run(["get", "lobby:world", target])
        assert.deepStrictEqual([again.code, again.stderr], [64, "/world is a folder: add -r.\n"])
      }).pipe(Effect.scoped)
  )

  it.live("a link of this system in the place of a folder is not followed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const { run } = yield* fakeFiles({
        folders: { "/": [{ name: "sub", type: "folder" }], "/sub": [{ name: "a" }] },
        contents: { "/sub/a": Buffer.from("new") }
      })
      mkdirSync(join(folder, "elsewhere"))
      mkdirSync(join(folder, "lobby"))
      symlinkSync(join(folder, "elsewhere"), join(folder, "lobby/sub"))
      const { code, stderr } = yield* run(["get", "-r", "lobby:/", folder])
      assert.strictEqual(code, 1)
      assert.match(stderr, /^\/sub: make folder .*lobby\/sub/m)
      assert.deepStrictEqual(readdirSync(join(folder, "elsewhere")), [])
    }).pipe(Effect.scoped)
  )

  it.live("- is standard output", () =>
    Effect.gen(function* () {
      const { run } = yield* fakeFiles({ contents: { "/motd.txt": Buffer.from("hello\u001b[2J\n") } })
      for (const command of [
        ["get", "lobby:motd.txt", "-"],
        ["cat", "lobby:motd.txt"]
      ]) {
        const { code, stdout } = yield* run(command)
        assert.deepStrictEqual([code, stdout], [0, "hello\u001b[2J\n"])
      }
    }).pipe(Effect.scoped)
  )
})

describe("spec 10.2: names on a terminal", () => {
  it.live("a list and a report show what is not seen as escapes; JSON has names as they are", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const names = ["a\u001b[2J", "b\u202egpj.exe", "b\\u202egpj.exe", "c\nd"]
      const { run } = yield* fakeFiles({
        folders: { "/": names.map((name) => ({ name, type: "link", target: "\u200b" })) }
      })
      const listed = yield* run(["ls", "lobby"])
      const shown = ["a\\u001b[2J", "b\\u202egpj.exe", "b\\u005cu202egpj.exe", "c\\u000ad"]
      assert.deepStrictEqual(
        cells(listed.stdout.trimEnd())
          .slice(1)
          .map(([name]) => name),
        shown.map((name) => `${name} -> \\u200b`)
      )
      const got = yield* run(["get", "-r", "lobby:/", folder])
      for (const name of shown) assert.include(got.stderr, `/${name} is left out: a link`)
      const found: ReadonlyArray<{ readonly name: string }> = JSON.parse(
        (yield* run(["ls", "lobby", "--json"])).stdout
      )
      assert.deepStrictEqual(
        found.map(({ name }) => name),
        names
      )
    }).pipe(Effect.scoped)
  )
})

describe("spec 8.7: muster files put", () => {
  it.live("a file keeps its permissions, goes into a folder, and is sent again after a break", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const contents: Record<string, Buffer> = {}
      const { asked, run } = yield* fakeFiles({
        folders: { "/": [], "/plugins": [] },
        contents,
        breaks: [1, 1]
      })
      writeFileSync(join(folder, "x.jar"), BIG)
      chmodSync(join(folder, "x.jar"), 0o750)
      const { code, stderr } = yield* run(["put", join(folder, "x.jar"), "lobby:plugins"])
      assert.deepStrictEqual([code, stderr], [0, ""])
      assert.isTrue(contents["/plugins/x.jar"]?.equals(BIG))
      const sent = "PUT /content?path=%2Fplugins%2Fx.jar&mode=0750"
      assert.deepStrictEqual(
        asked.filter((request) => request.startsWith("PUT")),
        [sent, sent, sent]
      )
    }).pipe(Effect.scoped)
  )

  it.live("a folder goes with all files and empty folders; links and pipes are reported", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const contents: Record<string, Buffer> = {}
      const { asked, run } = yield* fakeFiles({ folders: { "/": [] }, contents })
      const world = join(folder, "world")
      mkdirSync(join(world, "region"), { recursive: true })
      mkdirSync(join(world, "empty"))
      writeFileSync(join(world, "level.dat"), "level")
      writeFileSync(join(world, "region/100%AF.mca"), "region")
      writeFileSync(Buffer.concat([Buffer.from(join(world, "b")), Buffer.from([0xff])]), "byte")
      symlinkSync("/etc/passwd", join(world, "link"))
      const refused = yield* run(["put", world, "lobby:/"])
      assert.strictEqual(refused.code, 64)
      assert.match(refused.stderr, /world is a folder: add -r\.$/m)
      assert.deepStrictEqual(contents, {})
      const { code, stderr } = yield* run(["put", "-r", world, "lobby:/"])
      assert.strictEqual(code, 0, stderr)
      assert.sameMembers(Object.keys(contents), [
        "/world/level.dat",
        "/world/region/100%25AF.mca",
        "/world/b%FF"
      ])
      assert.match(
        stderr,
        /link is left out: a link, which is not followed\n3 files uploaded \(15 B\), 1 left out\n$/
      )
      assert.deepStrictEqual(
        asked.filter((request) => request.startsWith("POST")),
        ["POST /folder?"]
      )
      yield* run(["put", "-r", `${world}/.`, "lobby:/"])
      assert.isTrue(contents["/level.dat"]?.equals(Buffer.from("level")))
    }).pipe(Effect.scoped)
  )

  it.live("several files need a folder, and a path without a server is refused before anything is sent", () =>
    Effect.gen(function* () {
      const { asked, run } = yield* fakeFiles({ folders: { "/": [] } })
      for (const [args, message] of [
        [["put", "a", "b", "lobby:/x"], "/x is no folder: write /x/ to make one."],
        [["put", "a", "/x"], "expected SERVER:PATH, got /x."],
        [["put", "nope", "lobby:/"], "read nope: no such file or folder"],
        [["put", "-", "lobby:/"], "Standard input has no name: name a file, as in SERVER:/folder/file."],
        [
          ["rm", "lobby:/"],
          "The whole folder of a server stays: `muster servers reset <server>` empties it."
        ],
        [["rm", "lobby:/../x"], "the path /../x contains `..`."]
      ] as const) {
        const { stderr } = yield* run(args)
        assert.strictEqual(stderr, `${message}\n`)
      }
      assert.isFalse(asked.some((request) => request.startsWith("PUT")))
    }).pipe(Effect.scoped)
  )
})

/** An editor that runs a line of shell on the file. */
const editor = (folder: string, line: string) => {
  const file = join(folder, "editor.sh")
  writeFileSync(file, `#!/bin/sh\n${line}\n`)
  chmodSync(file, 0o755)
  return { EDITOR: file, TMPDIR: folder }
}

const copies = (folder: string) => readdirSync(folder).filter((name) => name.startsWith("muster-edit-"))

describe("spec 8.7: muster files edit", () => {
  it.live("the file is edited in a copy of this user only, written back, and the copy removed", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const contents: Record<string, Buffer> = { "/motd.txt": Buffer.from("old\n") }
      const { run } = yield* fakeFiles({ contents })
      const edit = editor(folder, `stat -c %a "$1" > ${folder}/mode; echo new >> "$1"`)
      const { code, stderr, stdout } = yield* run(["edit", "lobby:motd.txt"], edit)
      assert.deepStrictEqual([code, stderr, stdout], [0, "", "/motd.txt is changed\n"])
      assert.strictEqual(contents["/motd.txt"]?.toString(), "old\nnew\n")
      assert.strictEqual(readFileSync(join(folder, "mode"), "utf8"), "600\n")
      assert.deepStrictEqual(copies(folder), [])
      const same = yield* run(["edit", "lobby:motd.txt"], editor(folder, "exit 0"))
      assert.deepStrictEqual([same.code, same.stderr], [0, "/motd.txt is unchanged.\n"])
      const made = yield* run(["edit", "lobby:/new.txt"], editor(folder, 'echo made > "$1"'))
      assert.strictEqual(made.stdout, "/new.txt is made\n")
      assert.strictEqual(contents["/new.txt"]?.toString(), "made\n")
    }).pipe(Effect.scoped)
  )

  it.live("a file that changed meanwhile is not overwritten, and the edited copy stays", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const contents: Record<string, Buffer> = { "/motd.txt": Buffer.from("old\n") }
      const { env, run } = yield* fakeFiles({ contents })
      const meanwhile = `curl -sS -X PUT --data-binary theirs '${env.MUSTER_URL}/api/servers/k7f3m1x9q2ab/files/content?path=/motd.txt'; echo mine > "$1"`
      const { code, stderr } = yield* run(["edit", "lobby:motd.txt"], editor(folder, meanwhile))
      assert.strictEqual(code, 2, stderr)
      const [, copy = ""] =
        /^\/motd\.txt was changed meanwhile, and is not overwritten\. The edited copy is (\S+)\.$/m.exec(
          stderr
        ) ?? []
      assert.isTrue(existsSync(copy), stderr)
      assert.strictEqual(readFileSync(copy, "utf8"), "mine\n")
      assert.strictEqual(contents["/motd.txt"]?.toString(), "theirs")
    }).pipe(Effect.scoped)
  )

  it.live("an editor that fails changes nothing", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const contents: Record<string, Buffer> = { "/motd.txt": Buffer.from("old\n") }
      const { run } = yield* fakeFiles({ contents })
      const { code, stderr } = yield* run(["edit", "lobby:motd.txt"], editor(folder, "exit 3"))
      assert.deepStrictEqual([code, stderr], [1, "the editor ended with 3: /motd.txt is unchanged.\n"])
      assert.deepStrictEqual(copies(folder), [])
      const none = yield* run(["edit", "lobby:motd.txt"])
      assert.strictEqual(none.code, 64)
    }).pipe(Effect.scoped)
  )
})
