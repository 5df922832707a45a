import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { BlueprintStore, SoftwareStore } from "../../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { Sources } from "../../../../src/controlPlane/blueprints/sources/Sources.ts"
import { blueprintFile, paperFile, softwareFile } from "../support.ts"
import {
  errorOf,
  filesOf,
  ids,
  oneSource,
  reload,
  remove,
  type SourcesSetup,
  sourcesSetup,
  withStores
} from "./support.ts"

/** Returns the versions of sources that are on the disk. */
const states = ({ blueprints }: SourcesSetup) => {
  const hidden = join(blueprints, ".muster-sources")
  return existsSync(hidden)
    ? readdirSync(hidden).flatMap((owner) =>
        readdirSync(join(hidden, owner)).map((name) => name.slice(0, -9))
      )
    : []
}

describe("sources: result of a sync", () => {
  it.live("the definition files of a folder at a ref are below the destination before the first load", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("worlds.git")
      const commit = repository.commit({
        "game/a.yml": blueprintFile("a"),
        "game/deep/er/b.yaml": blueprintFile("b"),
        "game/README.md": "no definition",
        "game/.github/workflows/ci.yml": "no: definition",
        "else/c.yml": "not: read"
      })
      writeFileSync(join(setup.blueprints, "own.yml"), blueprintFile("own"))
      writeFileSync(join(setup.software, "paper.yml"), paperFile)
      setup.list([{ id: "worlds", url: repository.folder, path: "game", destination: "teams/worlds" }])
      const log: Array<string> = []
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "b", "own"])
          const [source] = yield* (yield* Sources).list
          assert.match(source?.synced_at ?? "", /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
          assert.deepStrictEqual(
            { ...source, synced_at: "" },
            {
              id: "worlds",
              kind: "blueprints",
              url: repository.folder,
              ref: null,
              path: "game",
              destination: "teams/worlds",
              commit,
              synced_at: "",
              error: null
            }
          )
        }),
        { log }
      )
      assert.deepStrictEqual(log, [`Info blueprints: source worlds is at HEAD (${commit.slice(0, 12)})`])
      assert.deepStrictEqual(filesOf(setup, "teams/worlds"), ["a.yml", "deep", "deep/er", "deep/er/b.yaml"])
      assert.deepStrictEqual(states(setup), ["worlds"])
    })
  )

  it.live(
    "a ref is a branch, tag, commit or the remote's HEAD; a reload follows it, also after a force-push",
    () =>
      Effect.gen(function* () {
        const setup = yield* sourcesSetup
        const repository = setup.repository("r")
        const first = repository.commit({ "a.yml": blueprintFile("a1") })
        repository.git(["tag", "-a", "v1", "-m", "x"])
        repository.git(["branch", "stable"])
        repository.commit({ "a.yml": blueprintFile("a2") })
        const refs = {
          head: undefined,
          stable: "stable",
          tagged: "v1",
          exact: first,
          full: "refs/heads/main"
        }
        for (const [ref, expected] of [
          [refs.head, "a2"],
          [refs.stable, "a1"],
          [refs.tagged, "a1"],
          [refs.exact, "a1"],
          [refs.full, "a2"]
        ] as const) {
          setup.list([{ id: "s", url: `file://${repository.folder}`, ...(ref === undefined ? {} : { ref }) }])
          assert.deepStrictEqual(yield* withStores(setup, ids), [expected], ref)
        }
        setup.list([{ id: "s", url: repository.folder, ref: "stable" }])
        yield* withStores(
          setup,
          Effect.gen(function* () {
            assert.deepStrictEqual(yield* ids, ["a1"])
            repository.git(["branch", "--force", "stable", "main"])
            yield* reload
            assert.deepStrictEqual(yield* ids, ["a2"])
            repository.git(["checkout", "--quiet", "--orphan", "fresh"])
            repository.commit({ "z.yml": blueprintFile("z") })
            repository.git(["branch", "--force", "stable", "fresh"])
            yield* reload
            assert.deepStrictEqual(yield* ids, ["z"])
            repository.git(["branch", "--force", "stable", first])
            yield* reload
            assert.deepStrictEqual(yield* ids, ["a1"])
          })
        )
      })
  )

  it.live("sources of software are synced to the software folder", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "blueprints/a.yml": blueprintFile("a"), "software/paper.yml": paperFile })
      setup.list([
        { id: "worlds", url: repository.folder, path: "blueprints" },
        { id: "games", kind: "software", url: repository.folder, path: "software" }
      ])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.strictEqual((yield* (yield* BlueprintStore).get("a")).server.image, "example/java:21")
          repository.commit({ "blueprints/a.yml": blueprintFile("a"), "software/b.yml": softwareFile("b") })
          const software = yield* SoftwareStore
          yield* software.reload
          assert.deepStrictEqual(
            (yield* software.list).map(({ id }) => id),
            ["b"]
          )
        })
      )
      assert.isTrue(existsSync(join(setup.software, "games/b.yml")))
    })
  )

  it.live("manual changes in the folder of a source are reverted", () =>
    Effect.gen(function* () {
      const { setup } = yield* oneSource
      yield* withStores(
        setup,
        Effect.gen(function* () {
          writeFileSync(join(setup.blueprints, "s/a.yml"), "broken")
          writeFileSync(join(setup.blueprints, "s/more.yml"), blueprintFile("more"))
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a"])
          assert.strictEqual(readFileSync(join(setup.blueprints, "s/a.yml"), "utf8"), blueprintFile("a"))
          assert.deepStrictEqual(states(setup), ["s"])
        })
      )
    })
  )
})

describe("sources: failed sync", () => {
  it.live("at a start it is a warning; the previous files are served", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      writeFileSync(join(setup.blueprints, "own.yml"), blueprintFile("own"))
      setup.list([{ id: "s", url: repository.folder }])
      yield* withStores(setup, ids)
      remove(repository.folder)
      const log: Array<string> = []
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "own"])
        }),
        { log }
      )
      const [line = ""] = log
      assert.match(line, /^Warn blueprints: source s: no repository at the path that its `url` names;/)
      assert.match(line, /what it has put in place before stays; correct the cause, then reload$/)
      assert.notInclude(line, repository.folder)
      assert.notInclude(line, setup.data)
    })
  )

  it.live("at a reload it is SourceFailed with the name of the source; the rest is reloaded", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const good = setup.repository("good")
      const bad = setup.repository("bad")
      good.commit({ "g.yml": blueprintFile("g") })
      bad.commit({ "b.yml": blueprintFile("b") })
      bad.git(["branch", "gone"])
      setup.list([
        { id: "good", url: good.folder },
        { id: "bad", url: bad.folder, ref: "gone" }
      ])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["b", "g"])
          bad.git(["branch", "--delete", "--force", "gone"])
          good.commit({ "g.yml": blueprintFile("g2") })
          writeFileSync(join(setup.blueprints, "own.yml"), blueprintFile("own"))
          const error = yield* Effect.flip(reload)
          assert.strictEqual(error._tag, "SourceFailed")
          assert.deepStrictEqual(error.detail.split("\n"), [
            "source bad: couldn't find remote ref gone",
            "Everything else in the blueprints folder was reloaded."
          ])
          assert.deepStrictEqual(yield* ids, ["b", "g2", "own"])
          assert.strictEqual(yield* errorOf("bad"), "couldn't find remote ref gone")
          const { warnings } = yield* BlueprintStore
          assert.deepStrictEqual(yield* warnings, [
            "bad/b.yml: software paper is not defined",
            "good/g.yml: software paper is not defined",
            "own.yml: software paper is not defined",
            "source bad: couldn't find remote ref gone; what it has put in place before stays; correct the cause, then reload"
          ])
          bad.git(["branch", "gone"])
          yield* reload
          assert.isNull(yield* errorOf("bad"))
          assert.lengthOf(yield* warnings, 3)
        })
      )
    })
  )

  it.live("the error names a missing folder, a repository without a commit, or one without definitions", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      setup.repository("empty")
      const commit = repository.commit({ "a/README.md": "x", "file.yml": "x: 1" })
      const blob = repository.git(["rev-parse", "HEAD:file.yml"])
      repository.git(["tag", "blob", blob])
      const url = repository.folder
      setup.list([
        { id: "s1", url, path: "nope" },
        { id: "s2", url: join(setup.root, "empty") },
        { id: "s3", url, path: "a" },
        { id: "s4", url, path: "file.yml" },
        { id: "s5", url, ref: "blob" },
        { id: "s6", url, ref: "f".repeat(40) },
        { id: "s7", url: setup.root },
        { id: "s8", url: "/nowhere", token_env: undefined }
      ])
      const at = commit.slice(0, 12)
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.strictEqual(yield* errorOf("s1"), `there is no folder \`nope\` in HEAD (${at})`)
          assert.match((yield* errorOf("s2")) ?? "", /couldn't find remote ref HEAD/)
          assert.strictEqual(yield* errorOf("s3"), "there is no *.yml or *.yaml file in its folder `a`")
          assert.strictEqual(yield* errorOf("s4"), `there is no folder \`file.yml\` in HEAD (${at})`)
          assert.strictEqual(yield* errorOf("s5"), "blob is no commit")
          assert.match((yield* errorOf("s6")) ?? "", /not our ref f{40}/)
          for (const id of ["s7", "s8"]) {
            assert.strictEqual(yield* errorOf(id), "no repository at the path that its `url` names")
          }
        })
      )
      assert.deepStrictEqual(states(setup), [])
    })
  )

  it.live("the error names a missing git", () =>
    Effect.gen(function* () {
      const { setup } = yield* oneSource
      const log: Array<string> = []
      yield* withStores(setup, ids, { log, environment: { PATH: join(setup.root, "nothing") } })
      assert.match(log[0] ?? "", /source s: git is not installed; install it \(Debian: apt-get install git\)/)
    })
  )
})

describe("sources: invalid files", () => {
  it.live("at a reload they are 422; memory and disk are unchanged", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const one = setup.repository("one")
      const two = setup.repository("two")
      one.commit({ "a.yml": blueprintFile("a") })
      two.commit({ "b.yml": blueprintFile("b") })
      setup.list([
        { id: "one", url: one.folder },
        { id: "two", url: two.folder }
      ])
      const restart = withStores(setup, ids)
      yield* withStores(
        setup,
        Effect.gen(function* () {
          one.commit({ "a.yml": `${blueprintFile("a")}sever: 1\n`, "b.yml": blueprintFile("b") })
          two.commit({ "b.yml": blueprintFile("b"), "c.yml": blueprintFile("c") })
          const error = yield* Effect.flip(reload)
          assert.strictEqual(error._tag, "InvalidRequest")
          assert.deepStrictEqual(error.detail.split("\n"), [
            "one/a.yml:3:1: unknown key `sever`; did you mean `server`?",
            "two/b.yml:1:18: the blueprint id `b` is taken by one/b.yml:1"
          ])
          assert.deepStrictEqual(yield* ids, ["a", "b"])
          assert.deepStrictEqual(filesOf(setup, "one"), ["a.yml"])
          assert.deepStrictEqual(filesOf(setup, "two"), ["b.yml"])
          assert.match((yield* errorOf("one")) ?? "", /^its new files are not accepted: one\/a\.yml:3:1: /)
          assert.deepStrictEqual(states(setup).toSorted(), ["one", "two"])
        })
      )
      // The restart takes the valid source, and keeps the old files of the other.
      const log: Array<string> = []
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "b", "c"])
        }),
        { log }
      )
      assert.match(
        log[0] ?? "",
        /^Warn blueprints: source one: its new files are not accepted: one\/a\.yml:3:1: unknown/
      )
      one.commit({ "a.yml": blueprintFile("a9") })
      assert.deepStrictEqual(yield* restart, ["a9", "b", "c"])
    })
  )

  it.live("a new source serves its valid files, and replaces no definition of another", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const good = setup.repository("good")
      const thief = setup.repository("thief")
      good.commit({ "x.yml": blueprintFile("x"), "bad.yml": "blueprint: [" })
      thief.commit({ "own.yml": blueprintFile("own", "save: true\n") })
      writeFileSync(join(setup.blueprints, "own.yml"), blueprintFile("own"))
      setup.list([
        { id: "good", url: good.folder },
        // It sorts before `own.yml`, and would otherwise take the id.
        { id: "a-thief", url: thief.folder }
      ])
      const log: Array<string> = []
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["own", "x"])
          assert.isFalse((yield* (yield* BlueprintStore).get("own")).save)
        }),
        { log }
      )
      assert.isTrue(
        log.some((line) => /source a-thief: its new files are not accepted: own\.yml:1:18/.test(line))
      )
      assert.isTrue(log.some((line) => line.startsWith("Error blueprints: good/bad.yml:1:")))
      assert.isFalse(existsSync(join(setup.blueprints, "a-thief")))
    })
  )

  it.live("files that only another source's new files make valid are taken with them", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const one = setup.repository("one")
      const two = setup.repository("two")
      one.commit({ "m.yml": "mixin: { id: m }\n" })
      two.commit({ "a.yml": `${blueprintFile("a")}includes: [m]\n` })
      setup.list([
        { id: "one", url: one.folder },
        { id: "two", url: two.folder }
      ])
      assert.deepStrictEqual(yield* withStores(setup, ids), ["a"])
      one.commit({ "n.yml": "mixin: { id: n }\n" })
      two.commit({ "b.yml": `${blueprintFile("b")}includes: [n]\n` })
      assert.deepStrictEqual(yield* withStores(setup, ids), ["b"])
    })
  )
})

describe("sources: destinations", () => {
  it.live("files of the operator are never replaced; an empty folder is", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      mkdirSync(join(setup.blueprints, "own"))
      writeFileSync(join(setup.blueprints, "own/mine.yml"), blueprintFile("mine"))
      writeFileSync(join(setup.blueprints, "file"), "x")
      mkdirSync(join(setup.blueprints, "empty"))
      setup.list([
        { id: "own", url: repository.folder },
        { id: "file", url: repository.folder },
        { id: "empty", url: repository.folder }
      ])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "mine"])
          assert.match(
            (yield* errorOf("own")) ?? "",
            /^the destination `own` holds what this source has not put/
          )
          assert.match((yield* errorOf("file")) ?? "", /^the destination `file` holds what this source/)
          assert.isNull(yield* errorOf("empty"))
          const error = yield* Effect.flip(reload)
          assert.strictEqual(error._tag, "SourceFailed")
        })
      )
      assert.deepStrictEqual(readdirSync(join(setup.blueprints, "own")), ["mine.yml"])
    })
  )

  it.live("a destination through a symbolic link is refused", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      mkdirSync(join(setup.root, "elsewhere"))
      yield* Effect.promise(() =>
        import("node:fs/promises").then((fs) =>
          fs.symlink(join(setup.root, "elsewhere"), join(setup.blueprints, "way"))
        )
      )
      setup.list([{ id: "s", url: repository.folder, destination: "way/s" }])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.strictEqual(yield* errorOf("s"), "the destination `way/s` leads through a symbolic link")
        })
      )
      assert.deepStrictEqual(readdirSync(join(setup.root, "elsewhere")), [])
    })
  )

  it.live("a new destination replaces the old one; the folder of a removed source is deleted", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      const other = setup.repository("other")
      other.commit({ "b.yml": blueprintFile("b") })
      const rest = { id: "other", url: other.folder }
      setup.list([{ id: "s", url: repository.folder, destination: "before" }, rest])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          setup.list([{ id: "s", url: repository.folder, destination: "deep/after" }, rest])
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a", "b"])
          assert.isFalse(existsSync(join(setup.blueprints, "before")))
          assert.isTrue(existsSync(join(setup.blueprints, "deep/after/a.yml")))

          // A folder that the operator has replaced is no longer the source's.
          remove(join(setup.blueprints, "deep/after"))
          mkdirSync(join(setup.blueprints, "deep/after"))
          writeFileSync(join(setup.blueprints, "deep/after/mine.yml"), blueprintFile("mine"))
          setup.list([])
          yield* reload
          assert.deepStrictEqual(yield* ids, ["mine"])
          assert.isFalse(existsSync(join(setup.blueprints, "other")))
          assert.deepStrictEqual(states(setup), [])
          assert.deepStrictEqual(yield* (yield* Sources).list, [])
        })
      )
    })
  )

  it.live("a removed source is kept while other definitions need it", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "m.yml": "mixin: { id: m }\n" })
      setup.list([{ id: "s", url: repository.folder }])
      writeFileSync(join(setup.blueprints, "own.yml"), `${blueprintFile("own")}includes: [m]\n`)
      yield* withStores(
        setup,
        Effect.gen(function* () {
          setup.list([])
          assert.match((yield* Effect.flip(reload)).detail, /own\.yml:3:12: no mixin `m`/)
          assert.deepStrictEqual(yield* ids, ["own"])
        })
      )
      assert.isTrue(existsSync(join(setup.blueprints, "s/m.yml")))
      assert.deepStrictEqual(yield* withStores(setup, ids), ["own"])
      writeFileSync(join(setup.blueprints, "own.yml"), blueprintFile("own"))
      assert.deepStrictEqual(yield* withStores(setup, ids), ["own"])
      assert.isFalse(existsSync(join(setup.blueprints, "s")))
    })
  )

  it.live("two services that share a definitions folder do not change each other's sources", () =>
    Effect.gen(function* () {
      const { repository, setup } = yield* oneSource
      yield* withStores(setup, ids)
      const other = { ...setup, data: join(setup.root, "data2"), file: join(setup.root, "other.yml") }
      writeFileSync(other.file, "sources: []")
      assert.deepStrictEqual(yield* withStores(other, ids), ["a"])
      writeFileSync(other.file, JSON.stringify({ sources: [{ id: "s", url: repository.folder }] }))
      yield* withStores(
        other,
        Effect.gen(function* () {
          assert.match((yield* errorOf("s")) ?? "", /holds what this source has not put there/)
        })
      )
      assert.isTrue(lstatSync(join(setup.blueprints, "s")).isSymbolicLink())
      assert.isTrue(existsSync(join(setup.blueprints, "s/a.yml")))
    })
  )
})

describe("sources: reloads run one at a time", () => {
  it.live("concurrent reloads end in order, each with a complete set", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "a.yml": blueprintFile("a0"), "b.yml": blueprintFile("b0") })
      setup.list([{ id: "s", url: repository.folder }])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          const seen = new Set<string>()
          const look = Effect.map(ids, (all) => seen.add(all.join()))
          const reloads = Array.from({ length: 12 }, (_, n) =>
            Effect.gen(function* () {
              repository.commit({ "a.yml": blueprintFile(`a${n}`), "b.yml": blueprintFile(`b${n}`) })
              yield* reload
              yield* look
            })
          )
          yield* Effect.all(reloads, { concurrency: "unbounded" })
          for (const set of seen) assert.match(set, /^a(\d+),b\1$/)
          assert.deepStrictEqual(yield* ids, ["a11", "b11"])
          assert.deepStrictEqual(states(setup), ["s"])
        })
      )
    })
  )

  it.live("an interrupted reload changes nothing and leaves no files", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("r")
      repository.commit({ "a.yml": blueprintFile("a0") })
      setup.list([{ id: "s", url: repository.folder }])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          for (let n = 1; n <= 8; n++) {
            repository.commit({ "a.yml": blueprintFile(`a${n}`) })
            yield* Effect.timeoutOption(reload, n * 5)
            const served = yield* ids
            const onDisk = readFileSync(join(setup.blueprints, "s/a.yml"), "utf8")
            assert.deepStrictEqual(
              served.map((id) => blueprintFile(id)),
              [onDisk]
            )
            assert.deepStrictEqual(states(setup), ["s"])
          }
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a8"])
        })
      )
    })
  )
})
