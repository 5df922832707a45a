import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { BlueprintStore } from "../../../src/blueprints/BlueprintStore.ts"
import { SoftwareStore } from "../../../src/blueprints/SoftwareStore.ts"
import { Sources } from "../../../src/blueprints/sources/Sources.ts"
import { blueprintFile, paperFile, softwareFile } from "../support.ts"
import { errorOf, ids, reload, remove, started, type World, world } from "./support.ts"

/** What is left of syncs beside what is in use. */
const states = ({ blueprints }: World) => {
  const hidden = join(blueprints, ".muster-sources")
  return existsSync(hidden)
    ? readdirSync(hidden).flatMap((owner) =>
        readdirSync(join(hidden, owner)).map((name) => name.slice(0, -9))
      )
    : []
}

describe("sources: what a sync brings", () => {
  it.live("the definition files of a folder of a ref, below the destination, before the first load", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("worlds.git")
      const commit = repository.commit({
        "game/a.yml": blueprintFile("a"),
        "game/deep/er/b.yaml": blueprintFile("b"),
        "game/README.md": "no definition",
        "game/.github/workflows/ci.yml": "no: definition",
        "else/c.yml": "not: read"
      })
      writeFileSync(join(here.blueprints, "own.yml"), blueprintFile("own"))
      writeFileSync(join(here.software, "paper.yml"), paperFile)
      here.list([{ id: "worlds", url: repository.folder, path: "game", destination: "teams/worlds" }])
      const log: Array<string> = []
      yield* started(
        here,
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
      assert.deepStrictEqual(
        readdirSync(join(here.blueprints, "teams/worlds"), { recursive: true }).toSorted(),
        ["a.yml", "deep", "deep/er", "deep/er/b.yaml"]
      )
      assert.deepStrictEqual(states(here), ["worlds"])
    })
  )

  it.live("branch, tag, commit and the remote's HEAD; a reload follows, also a force-push", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      const first = repository.commit({ "a.yml": blueprintFile("a1") })
      repository.git(["tag", "-a", "v1", "-m", "x"])
      repository.git(["branch", "stable"])
      repository.commit({ "a.yml": blueprintFile("a2") })
      const refs = { head: undefined, stable: "stable", tagged: "v1", exact: first, full: "refs/heads/main" }
      for (const [ref, expected] of [
        [refs.head, "a2"],
        [refs.stable, "a1"],
        [refs.tagged, "a1"],
        [refs.exact, "a1"],
        [refs.full, "a2"]
      ] as const) {
        here.list([{ id: "s", url: `file://${repository.folder}`, ...(ref === undefined ? {} : { ref }) }])
        assert.deepStrictEqual(yield* started(here, ids), [expected], ref)
      }
      here.list([{ id: "s", url: repository.folder, ref: "stable" }])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a1"])
          repository.git(["branch", "--force", "stable", "main"])
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a2"])
          repository.git(["checkout", "--quiet", "--orphan", "anew"])
          repository.commit({ "z.yml": blueprintFile("z") })
          repository.git(["branch", "--force", "stable", "anew"])
          yield* reload
          assert.deepStrictEqual(yield* ids, ["z"])
          repository.git(["branch", "--force", "stable", first])
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a1"])
        })
      )
    })
  )

  it.live("software too, into the software folder", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "blueprints/a.yml": blueprintFile("a"), "software/paper.yml": paperFile })
      here.list([
        { id: "worlds", url: repository.folder, path: "blueprints" },
        { id: "games", kind: "software", url: repository.folder, path: "software" }
      ])
      yield* started(
        here,
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
      assert.isTrue(existsSync(join(here.software, "games/b.yml")))
    })
  )

  it.live("what has not changed is not written again", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a"), "b/c/d.yml": blueprintFile("d") })
      here.list([{ id: "s", url: repository.folder }])
      const state = () => readlinkSync(join(here.blueprints, "s"))
      yield* started(here, ids)
      const first = state()
      const commit = repository.commit({
        "a.yml": blueprintFile("a"),
        "b/c/d.yml": blueprintFile("d"),
        "x.md": "x"
      })
      yield* started(
        here,
        Effect.gen(function* () {
          assert.strictEqual(state(), first)
          assert.strictEqual((yield* (yield* Sources).list)[0]?.commit, commit)
          here.list([{ id: "s", url: repository.folder, destination: "moved/s" }])
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a", "d"])
        })
      )
      assert.strictEqual(readlinkSync(join(here.blueprints, "moved/s")), `../${first}`)
    })
  )

  it.live("what was changed by hand in a source's folder is as in the repository again", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      here.list([{ id: "s", url: repository.folder }])
      yield* started(
        here,
        Effect.gen(function* () {
          writeFileSync(join(here.blueprints, "s/a.yml"), "broken")
          writeFileSync(join(here.blueprints, "s/more.yml"), blueprintFile("more"))
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a"])
          assert.strictEqual(readFileSync(join(here.blueprints, "s/a.yml"), "utf8"), blueprintFile("a"))
          assert.deepStrictEqual(states(here), ["s"])
        })
      )
    })
  )
})

describe("sources: one that fails", () => {
  it.live("at the start is a warning; what it has put in place before serves on", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      writeFileSync(join(here.blueprints, "own.yml"), blueprintFile("own"))
      here.list([{ id: "s", url: repository.folder }])
      yield* started(here, ids)
      remove(repository.folder)
      const log: Array<string> = []
      yield* started(
        here,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "own"])
        }),
        { log }
      )
      const [line = ""] = log
      assert.match(line, /^Warn blueprints: source s: no repository at the path that its `url` names;/)
      assert.match(line, /what it has put in place before stays; correct the cause, then reload$/)
      assert.notInclude(line, repository.folder)
      assert.notInclude(line, here.data)
    })
  )

  it.live("at a reload is SourceFailed that names it; everything else is reloaded all the same", () =>
    Effect.gen(function* () {
      const here = yield* world
      const good = here.repository("good")
      const bad = here.repository("bad")
      good.commit({ "g.yml": blueprintFile("g") })
      bad.commit({ "b.yml": blueprintFile("b") })
      bad.git(["branch", "gone"])
      here.list([
        { id: "good", url: good.folder },
        { id: "bad", url: bad.folder, ref: "gone" }
      ])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["b", "g"])
          bad.git(["branch", "--delete", "--force", "gone"])
          good.commit({ "g.yml": blueprintFile("g2") })
          writeFileSync(join(here.blueprints, "own.yml"), blueprintFile("own"))
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

  it.live("names a missing folder, a repository without a commit, one without definitions", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      here.repository("empty")
      const commit = repository.commit({ "a/README.md": "x", "file.yml": "x: 1" })
      const blob = repository.git(["rev-parse", "HEAD:file.yml"])
      repository.git(["tag", "blob", blob])
      const url = repository.folder
      here.list([
        { id: "s1", url, path: "nope" },
        { id: "s2", url: join(here.root, "empty") },
        { id: "s3", url, path: "a" },
        { id: "s4", url, path: "file.yml" },
        { id: "s5", url, ref: "blob" },
        { id: "s6", url, ref: "f".repeat(40) },
        { id: "s7", url: here.root },
        { id: "s8", url: "/nowhere", token_env: undefined }
      ])
      const at = commit.slice(0, 12)
      yield* started(
        here,
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
      assert.deepStrictEqual(states(here), [])
    })
  )

  it.live("says so where git is not installed", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      here.list([{ id: "s", url: repository.folder }])
      const log: Array<string> = []
      yield* started(here, ids, { log, environment: { PATH: join(here.root, "nothing") } })
      assert.match(log[0] ?? "", /source s: git is not installed; install it \(Debian: apt-get install git\)/)
    })
  )
})

describe("sources: invalid files", () => {
  it.live("at a reload are 422; nothing changes, neither in memory nor on the disk", () =>
    Effect.gen(function* () {
      const here = yield* world
      const one = here.repository("one")
      const two = here.repository("two")
      one.commit({ "a.yml": blueprintFile("a") })
      two.commit({ "b.yml": blueprintFile("b") })
      here.list([
        { id: "one", url: one.folder },
        { id: "two", url: two.folder }
      ])
      const restart = started(here, ids)
      yield* started(
        here,
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
          assert.deepStrictEqual(readdirSync(join(here.blueprints, "one")), ["a.yml"])
          assert.deepStrictEqual(readdirSync(join(here.blueprints, "two")), ["b.yml"])
          assert.match((yield* errorOf("one")) ?? "", /^its new files are not taken: one\/a\.yml:3:1: /)
          assert.deepStrictEqual(states(here).toSorted(), ["one", "two"])
        })
      )
      // The restart takes what is valid, and leaves the other as it was.
      const log: Array<string> = []
      yield* started(
        here,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["a", "b", "c"])
        }),
        { log }
      )
      assert.match(
        log[0] ?? "",
        /^Warn blueprints: source one: its new files are not taken: one\/a\.yml:3:1: unknown/
      )
      one.commit({ "a.yml": blueprintFile("a9") })
      assert.deepStrictEqual(yield* restart, ["a9", "b", "c"])
    })
  )

  it.live("of a source that is new serve as far as they are valid, and take nothing from the others", () =>
    Effect.gen(function* () {
      const here = yield* world
      const good = here.repository("good")
      const thief = here.repository("thief")
      good.commit({ "x.yml": blueprintFile("x"), "bad.yml": "blueprint: [" })
      thief.commit({ "own.yml": blueprintFile("own", "save: true\n") })
      writeFileSync(join(here.blueprints, "own.yml"), blueprintFile("own"))
      here.list([
        { id: "good", url: good.folder },
        // Sorted before `own.yml`, it would have the id first.
        { id: "a-thief", url: thief.folder }
      ])
      const log: Array<string> = []
      yield* started(
        here,
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* ids, ["own", "x"])
          assert.isFalse((yield* (yield* BlueprintStore).get("own")).save)
        }),
        { log }
      )
      assert.isTrue(
        log.some((line) => /source a-thief: its new files are not taken: own\.yml:1:18/.test(line))
      )
      assert.isTrue(log.some((line) => line.startsWith("Error blueprints: good/bad.yml:1:")))
      assert.isFalse(existsSync(join(here.blueprints, "a-thief")))
    })
  )

  it.live("that are mended by another source's new files are taken with them", () =>
    Effect.gen(function* () {
      const here = yield* world
      const one = here.repository("one")
      const two = here.repository("two")
      one.commit({ "m.yml": "mixin: { id: m }\n" })
      two.commit({ "a.yml": `${blueprintFile("a")}includes: [m]\n` })
      here.list([
        { id: "one", url: one.folder },
        { id: "two", url: two.folder }
      ])
      assert.deepStrictEqual(yield* started(here, ids), ["a"])
      one.commit({ "n.yml": "mixin: { id: n }\n" })
      two.commit({ "b.yml": `${blueprintFile("b")}includes: [n]\n` })
      assert.deepStrictEqual(yield* started(here, ids), ["b"])
    })
  )
})

describe("sources: destinations", () => {
  it.live("somebody's own files are never replaced; an empty folder is no obstacle", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      mkdirSync(join(here.blueprints, "own"))
      writeFileSync(join(here.blueprints, "own/mine.yml"), blueprintFile("mine"))
      writeFileSync(join(here.blueprints, "file"), "x")
      mkdirSync(join(here.blueprints, "empty"))
      here.list([
        { id: "own", url: repository.folder },
        { id: "file", url: repository.folder },
        { id: "empty", url: repository.folder }
      ])
      yield* started(
        here,
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
      assert.deepStrictEqual(readdirSync(join(here.blueprints, "own")), ["mine.yml"])
    })
  )

  it.live("a way through a link that leads elsewhere is refused", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      mkdirSync(join(here.root, "elsewhere"))
      yield* Effect.promise(() =>
        import("node:fs/promises").then((fs) =>
          fs.symlink(join(here.root, "elsewhere"), join(here.blueprints, "way"))
        )
      )
      here.list([{ id: "s", url: repository.folder, destination: "way/s" }])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.strictEqual(yield* errorOf("s"), "the destination `way/s` leads through a symbolic link")
        })
      )
      assert.deepStrictEqual(readdirSync(join(here.root, "elsewhere")), [])
    })
  )

  it.live(
    "a new destination takes the place of the old one; a source that is gone takes its folder with it",
    () =>
      Effect.gen(function* () {
        const here = yield* world
        const repository = here.repository("r")
        repository.commit({ "a.yml": blueprintFile("a") })
        const other = here.repository("other")
        other.commit({ "b.yml": blueprintFile("b") })
        const rest = { id: "other", url: other.folder }
        here.list([{ id: "s", url: repository.folder, destination: "before" }, rest])
        yield* started(
          here,
          Effect.gen(function* () {
            here.list([{ id: "s", url: repository.folder, destination: "deep/after" }, rest])
            yield* reload
            assert.deepStrictEqual(yield* ids, ["a", "b"])
            assert.isFalse(existsSync(join(here.blueprints, "before")))
            assert.isTrue(existsSync(join(here.blueprints, "deep/after/a.yml")))

            // Replaced by hand: no longer the source's.
            remove(join(here.blueprints, "deep/after"))
            mkdirSync(join(here.blueprints, "deep/after"))
            writeFileSync(join(here.blueprints, "deep/after/mine.yml"), blueprintFile("mine"))
            here.list([])
            yield* reload
            assert.deepStrictEqual(yield* ids, ["mine"])
            assert.isFalse(existsSync(join(here.blueprints, "other")))
            assert.deepStrictEqual(states(here), [])
            assert.deepStrictEqual(yield* (yield* Sources).list, [])
          })
        )
      })
  )

  it.live("a source that others still need stays until they do not", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "m.yml": "mixin: { id: m }\n" })
      here.list([{ id: "s", url: repository.folder }])
      writeFileSync(join(here.blueprints, "own.yml"), `${blueprintFile("own")}includes: [m]\n`)
      yield* started(
        here,
        Effect.gen(function* () {
          here.list([])
          assert.match((yield* Effect.flip(reload)).detail, /own\.yml:3:12: no mixin `m`/)
          assert.deepStrictEqual(yield* ids, ["own"])
        })
      )
      assert.isTrue(existsSync(join(here.blueprints, "s/m.yml")))
      assert.deepStrictEqual(yield* started(here, ids), ["own"])
      writeFileSync(join(here.blueprints, "own.yml"), blueprintFile("own"))
      assert.deepStrictEqual(yield* started(here, ids), ["own"])
      assert.isFalse(existsSync(join(here.blueprints, "s")))
    })
  )

  it.live("two services share a definitions folder: neither touches the other's", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a") })
      here.list([{ id: "s", url: repository.folder }])
      yield* started(here, ids)
      const other = { ...here, data: join(here.root, "data2"), file: join(here.root, "other.yml") }
      writeFileSync(other.file, "sources: []")
      assert.deepStrictEqual(yield* started(other, ids), ["a"])
      writeFileSync(other.file, JSON.stringify({ sources: [{ id: "s", url: repository.folder }] }))
      yield* started(
        other,
        Effect.gen(function* () {
          assert.match((yield* errorOf("s")) ?? "", /holds what this source has not put there/)
        })
      )
      assert.isTrue(lstatSync(join(here.blueprints, "s")).isSymbolicLink())
      assert.isTrue(existsSync(join(here.blueprints, "s/a.yml")))
    })
  )
})

describe("sources: reloads run one at a time", () => {
  it.live("many at once end one after the other, each with a whole set", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a0"), "b.yml": blueprintFile("b0") })
      here.list([{ id: "s", url: repository.folder }])
      yield* started(
        here,
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
          assert.deepStrictEqual(states(here), ["s"])
        })
      )
    })
  )

  it.live("one that is interrupted leaves nothing behind and changes nothing", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("r")
      repository.commit({ "a.yml": blueprintFile("a0") })
      here.list([{ id: "s", url: repository.folder }])
      yield* started(
        here,
        Effect.gen(function* () {
          for (let n = 1; n <= 8; n++) {
            repository.commit({ "a.yml": blueprintFile(`a${n}`) })
            yield* Effect.timeoutOption(reload, n * 5)
            const served = yield* ids
            const onDisk = readFileSync(join(here.blueprints, "s/a.yml"), "utf8")
            assert.deepStrictEqual(
              served.map((id) => blueprintFile(id)),
              [onDisk]
            )
            assert.deepStrictEqual(states(here), ["s"])
          }
          yield* reload
          assert.deepStrictEqual(yield* ids, ["a8"])
        })
      )
    })
  )
})
