import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as fc from "fast-check"
import { parseListing } from "../../../../src/controlPlane/blueprints/sources/fetch.ts"
import { blueprintFile } from "../support.ts"
import { errorOf, filesOf, ids, type Repository, sourcesSetup, withStores } from "./support.ts"

/** Writes a tree object byte by byte, because git refuses to make it. */
const rawTree = (repository: Repository, entries: ReadonlyArray<readonly [string, string, string]>) =>
  repository.git(
    ["hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
    Buffer.concat(
      entries.map(([mode, name, oid]) =>
        Buffer.concat([Buffer.from(`${mode} ${name}\0`), Buffer.from(oid, "hex")])
      )
    )
  )

const blob = (repository: Repository, text: string) => repository.git(["hash-object", "-w", "--stdin"], text)

/** A source whose repository holds `a`, after its first sync. */
const syncedSource = Effect.gen(function* () {
  const setup = yield* sourcesSetup
  const repository = setup.repository("r")
  repository.commit({ "a.yml": blueprintFile("a") })
  setup.list([{ id: "s", url: repository.folder }])
  assert.deepStrictEqual(yield* withStores(setup, ids), ["a"])
  return { setup, repository }
})
type SyncedSource = Effect.Success<typeof syncedSource>

/** Syncs a branch with these tree entries; returns the error. */
const refusedTree = Effect.fnUntraced(function* (
  { repository, setup }: SyncedSource,
  entries: (repository: Repository) => ReadonlyArray<readonly [string, string, string]>
) {
  repository.commitTree("bad", rawTree(repository, entries(repository)))
  setup.list([{ id: "s", url: repository.folder, ref: "bad" }])
  const reason = yield* withStores(
    setup,
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* ids, ["a"])
      return yield* errorOf("s")
    })
  )
  assert.deepStrictEqual(filesOf(setup, "s"), ["a.yml"])
  return reason ?? ""
})

describe("sources: a hostile repository is refused as a whole, with the reason", () => {
  it.live("symbolic links are refused", () =>
    Effect.gen(function* () {
      const source = yield* syncedSource
      const file = yield* refusedTree(source, (r) => [["120000", "passwd.yml", blob(r, "/etc/passwd")]])
      assert.strictEqual(file, "`passwd.yml` is a symbolic link; a source holds files only")
      const folder = yield* refusedTree(source, (r) => [["120000", "up", blob(r, "../../..")]])
      assert.strictEqual(folder, "`up` is a symbolic link; a source holds files only")
      const git = yield* refusedTree(source, (r) => [
        ["100644", "a.yml", blob(r, blueprintFile("a"))],
        ["120000", "b.yml", blob(r, "a.yml")]
      ])
      assert.strictEqual(git, "`b.yml` is a symbolic link; a source holds files only")
    })
  )

  it.live("submodules with any URL are refused", () =>
    Effect.gen(function* () {
      const source = yield* syncedSource
      const reason = yield* refusedTree(source, (r) => [
        [
          "100644",
          ".gitmodules",
          blob(r, `[submodule "x"]\n\tpath = sub\n\turl = ext::sh -c touch% ${source.setup.root}/pwned\n`)
        ],
        ["160000", "sub", "1".repeat(40)]
      ])
      assert.strictEqual(reason, "`sub` is a submodule; a source holds files only")
      assert.isFalse(existsSync(join(source.setup.root, "pwned")))
    })
  )

  it.live("names that lead out of the folder are refused", () =>
    Effect.gen(function* () {
      const source = yield* syncedSource
      const up = yield* refusedTree(source, (r) => [
        ["40000", "..", rawTree(r, [["100644", "out.yml", blob(r, blueprintFile("out"))]])]
      ])
      assert.strictEqual(up, "`../out.yml` leads out of its folder")
      assert.isFalse(existsSync(join(source.setup.blueprints, "out.yml")))
      const slash = yield* refusedTree(source, (r) => [
        ["100644", "../out.yml", blob(r, blueprintFile("out"))]
      ])
      assert.strictEqual(slash, "`../out.yml` leads out of its folder")
      const absolute = yield* refusedTree(source, (r) => [
        ["100644", "/out.yml", blob(r, blueprintFile("out"))]
      ])
      assert.strictEqual(absolute, "`/out.yml` leads out of its folder")
      const line = yield* refusedTree(source, (r) => [["100644", "a\nb.yml", blob(r, blueprintFile("out"))]])
      assert.strictEqual(line, "the path `a b.yml` contains control characters")
      const back = yield* refusedTree(source, (r) => [["100644", "a\\b.yml", blob(r, blueprintFile("out"))]])
      assert.strictEqual(back, "the path `a\\b.yml` contains a backslash; write /")
    })
  )

  it.live("a file in place of a folder and duplicate names are refused", () =>
    Effect.gen(function* () {
      const source = yield* syncedSource
      const twice = yield* refusedTree(source, (r) => [
        ["100644", "x.yml", blob(r, blueprintFile("x"))],
        ["100644", "x.yml", blob(r, blueprintFile("y"))]
      ])
      assert.strictEqual(twice, "`x.yml` is there twice")
      const both = yield* refusedTree(source, (r) => [
        ["100644", "x.yml", blob(r, blueprintFile("x"))],
        ["40000", "x.yml", rawTree(r, [["100644", "z.yml", blob(r, blueprintFile("z"))]])]
      ])
      assert.match(both, /^its files cannot be written: /)
      const long = yield* refusedTree(source, (r) => [["100644", `${"n".repeat(252)}.yml`, blob(r, "x")]])
      assert.match(long, /^its files cannot be written: unable to create file n+\.yml: File name too long/)
    })
  )

  it.live("files that are too large or too many are refused", () =>
    Effect.gen(function* () {
      const source = yield* syncedSource
      const large = yield* refusedTree(source, (r) => [
        ["100644", "large.yml", blob(r, " ".repeat(1024 * 1024 + 1))]
      ])
      assert.strictEqual(large, "`large.yml`: the file is larger than 1 MiB")
      const many = yield* refusedTree(source, (r) => {
        const oid = blob(r, blueprintFile("x"))
        return Array.from({ length: 10_000 }, (_, n) => ["100644", `b${String(n).padStart(5, "0")}.yml`, oid])
      })
      assert.strictEqual(many, "more than 5000 definition files")
      const together = yield* refusedTree(source, (r) => {
        const oid = blob(r, " ".repeat(1024 * 1024))
        return Array.from({ length: 40 }, (_, n) => ["100644", `b${n + 10}.yml`, oid])
      })
      assert.strictEqual(together, "its definition files are larger than 32 MiB together")
    })
  )

  it.live("a tree of few objects that expands to a billion files is refused", () =>
    Effect.gen(function* () {
      const source = yield* syncedSource
      const reason = yield* refusedTree(source, (r) => {
        let entries: ReadonlyArray<readonly [string, string, string]> = [["100644", "x.yml", blob(r, "x")]]
        for (let level = 0; level < 9; level++) {
          const tree = rawTree(r, entries)
          entries = Array.from({ length: 10 }, (_, n) => ["40000", `d${n}`, tree])
        }
        return entries
      })
      assert.match(reason, /^the list of its files is larger than 16 MiB; name the folder/)
    })
  )
})

describe("sources: no code of a repository is run", () => {
  it.live("filters, attributes, hooks and the config of a local repository have no effect", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      const touch = (name: string) => `touch ${join(setup.root, name)}`
      repository.commit({
        ".gitattributes": "*.yml filter=evil diff=evil export-subst ident\n",
        ".gitconfig": `[core]\n\tfsmonitor = ${touch("pwned1")}\n`,
        "a.yml": `${blueprintFile("a")}annotations: { id: "$Id$", at: "$Format:%H$" }\n`
      })
      for (const [key, value] of [
        ["filter.evil.smudge", touch("pwned2")],
        ["filter.evil.process", touch("pwned3")],
        ["diff.evil.textconv", touch("pwned4")],
        ["uploadpack.packObjectsHook", touch("pwned5")],
        ["core.fsmonitor", touch("pwned6")],
        ["core.sshCommand", touch("pwned7")]
      ] as const) {
        repository.git(["config", key, value])
      }
      const hooks = join(repository.folder, ".git/hooks")
      mkdirSync(hooks, { recursive: true })
      for (const hook of ["post-checkout", "reference-transaction", "post-upload-pack", "pre-receive"]) {
        writeFileSync(join(hooks, hook), `#!/bin/sh\n${touch("pwned-hook")}\n`, { mode: 0o755 })
      }
      setup.list([{ id: "s", url: repository.folder }])
      assert.deepStrictEqual(yield* withStores(setup, ids), ["a"])
      assert.include(
        readFileSync(join(setup.blueprints, "s/a.yml"), "utf8"),
        '{ id: "$Id$", at: "$Format:%H$" }'
      )
      assert.deepStrictEqual(
        readdirSync(setup.root).filter((name) => name.startsWith("pwned")),
        []
      )
    })
  )
})

describe("sources: output of git", () => {
  const oid = "a".repeat(40)
  const listing = (...entries: ReadonlyArray<string>) => Buffer.from(entries.map((it) => `${it}\0`).join(""))

  it("any bytes are parsed without a defect; accepted paths stay in their folder", () => {
    const name = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom("..", ".", "a", "b.yml", "a/../b.yml", "/x.yml", "a//b.yml", ".git/x.yml", "a/b.yaml")
    )
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.constantFrom("100644", "100755", "120000", "160000", "040000"), name, fc.nat())),
        (entries) => {
          const result = parseListing(
            listing(...entries.map(([mode, path, size]) => `${mode} blob ${oid} ${size}\t${path}`))
          )
          if (Result.isFailure(result)) return assert.notStrictEqual(result.failure, "")
          for (const path of result.success) {
            assert.match(path, /^[^/].*\.ya?ml$/)
            assert.isFalse(path.split("/").some((part) => part === "" || part.startsWith(".")))
          }
        }
      ),
      { numRuns: 500 }
    )
    fc.assert(fc.property(fc.uint8Array(), (bytes) => void parseListing(bytes)))
  })
})
