import { execFileSync } from "node:child_process"
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { unmountBelow } from "../../support/mounts.ts"
import { ownUser, runAs, scene, ways, write } from "./scene.ts"

const asRoot = process.getuid?.() === 0
const [ONE, TWO, SOFTWARE] = [ownUser(70_101), ownUser(70_102), ownUser(70_103)]

/** Returns `uid:gid path` of every file in a folder with another owner. */
const foreign = (folder: string, uid: number): ReadonlyArray<string> =>
  ["", ...readdirSync(folder, { recursive: true, encoding: "utf8" })].flatMap((name) => {
    const stats = lstatSync(join(folder, name))
    return stats.uid === uid && stats.gid === uid ? [] : [`${stats.uid}:${stats.gid} ${name}`]
  })

const giveAll = (folder: string, uid: number) => execFileSync("chown", ["-R", "-h", `${uid}:${uid}`, folder])

/** Returns owner, mode, time of change and size of every file in a folder. */
const listing = (folder: string): string =>
  execFileSync("find", [folder, "-printf", "%P %U:%G %m %T@ %s\n"], { encoding: "utf8" })

const volumes = [
  { name: "w", source: "w", target: "world", mode: "cow" },
  { name: "d", source: "w", target: "other/deep", mode: "cow" },
  { name: "s", source: "s", target: "shared", mode: "rw" },
  { name: "r", source: "r", target: "lib", mode: "ro" }
] as const

const needed = asRoot ? "" : " (needs root)"

const all = { ...ways, "overlay, owners not mapped": { mapped: false } }

for (const [way, options] of Object.entries(all)) {
  const mounts = way !== "copy, without mounts"

  describe.runIf(asRoot)(`isolation, the files of a server: ${way}${needed}`, () => {
    const place = Effect.fnUntraced(function* () {
      const all = yield* scene(options)
      write(all.first.folder, { "bin/run": "run", "conf/a": "a" })
      chmodSync(join(all.first.folder, "bin/run"), 0o4755)
      symlinkSync("conf/a", join(all.first.folder, "link"))
      giveAll(all.first.folder, SOFTWARE.uid)
      write(all.volumes, { "w/level": "L", "r/x": "X", "s/all": "all" })
      chmodSync(join(all.volumes, "r/x"), 0o600)
      write(all.dataDir, { "files/config.yml": "c: 1" })
      return { ...all, copy: [{ source: "files/config.yml", target: "plugins/config.yml" }] }
    })

    it.effect(
      "all files appear with the server's uid, and it can change them; base and volumes are unchanged",
      () =>
        Effect.gen(function* () {
          const { copy, first, server, volumes: sources } = yield* place()
          const [own, shared] = [volumes.filter(({ mode }) => mode === "cow"), volumes]
          const one = server({ volumes: mounts ? shared : own, copy }, undefined, ONE)
          const before = [listing(first.folder), listing(join(sources, "w")), listing(join(sources, "r"))]
          yield* one.make
          assert.deepStrictEqual(foreign(one.files, ONE.uid), [])
          const output = runAs(
            ONE.uid,
            one.files,
            `chmod 600 conf/a && touch -d @7 conf/a && echo more >> conf/a && rm server.jar && echo n > world/level
          mkdir bin/new && mv link bin/link && echo deep > other/deep/level && cat bin/run plugins/config.yml`
          )
          assert.strictEqual(output, "runc: 1")
          assert.strictEqual(readFileSync(join(one.files, "conf/a"), "utf8"), "amore\n")
          assert.deepStrictEqual(foreign(one.files, ONE.uid), [])
          assert.deepStrictEqual(
            [listing(first.folder), listing(join(sources, "w")), listing(join(sources, "r"))],
            before
          )
          if (mounts)
            assert.strictEqual(runAs(ONE.uid, one.files, "cat lib/x; echo n > lib/x").slice(0, 1), "X")
          yield* one.close
          yield* one.open
          assert.deepStrictEqual(foreign(one.files, ONE.uid), [])
          assert.strictEqual(readFileSync(join(one.files, "other/deep/level"), "utf8"), "deep\n")
        }).pipe(Effect.scoped)
    )

    it.effect(
      "files that an operator adds as root are the server's after its next start; no other owner changes",
      () =>
        Effect.gen(function* () {
          const { copy, server } = yield* place()
          const one = server({ volumes: mounts ? volumes : [], copy }, undefined, ONE)
          yield* one.make
          runAs(ONE.uid, one.files, "rm server.jar")
          yield* one.reclaim
          yield* one.open
          write(one.files, { "conf/late": "late", "put/there": "there" })
          symlinkSync("/etc/passwd", join(one.files, "put/passwd"))
          yield* one.reclaim
          yield* one.open
          assert.deepStrictEqual(foreign(one.files, ONE.uid), [])
          assert.strictEqual(
            runAs(ONE.uid, one.files, "echo n > put/there && echo n > conf/late && ls"),
            runAs(ONE.uid, one.files, "ls")
          )
          assert.strictEqual(statSync("/etc/passwd").uid, 0)
          assert.isFalse(readdirSync(one.files).includes("server.jar"))
        }).pipe(Effect.scoped)
    )

    it.effect("two servers on one base cannot read each other's files", () =>
      Effect.gen(function* () {
        const { first, server } = yield* place()
        const [one, two] = [server({}, undefined, ONE), server({}, undefined, TWO)]
        yield* one.make
        yield* two.make
        for (const folder of [one.files, two.files]) chmodSync(folder, 0o700)
        runAs(ONE.uid, one.files, "echo secret > conf/a; chmod 600 conf/a")
        const attack = runAs(
          TWO.uid,
          two.files,
          `cat ${one.files}/conf/a; echo x > ${one.files}/new; echo x >> ${first.folder}/conf/a; chmod 777 ${first.folder}`
        )
        assert.notInclude(attack, "secret")
        assert.strictEqual(attack.match(/[Pp]ermission denied|not permitted/g)?.length, 4)
        assert.strictEqual(readFileSync(join(two.files, "conf/a"), "utf8"), "a")
        assert.strictEqual(readFileSync(join(first.folder, "conf/a"), "utf8"), "a")
      }).pipe(Effect.scoped)
    )

    it.effect("set-uid programs of the base do not run as another user", () =>
      Effect.gen(function* () {
        const { first, server } = yield* place()
        execFileSync("cp", ["/usr/bin/id", join(first.folder, "bin/run")])
        chownSync(join(first.folder, "bin/run"), SOFTWARE.uid, SOFTWARE.uid)
        chmodSync(join(first.folder, "bin/run"), 0o6755)
        const one = server({}, undefined, ONE)
        yield* one.make
        const output = execFileSync("setpriv", [`--reuid=${TWO.uid}`, "--clear-groups", "./bin/run", "-u"], {
          cwd: one.files,
          encoding: "utf8"
        })
        assert.strictEqual(output, `${TWO.uid}\n`)
        if (way.startsWith("copy")) assert.strictEqual(statSync(join(one.files, "bin/run")).mode & 0o6000, 0)
      }).pipe(Effect.scoped)
    )

    it.effect("a new base has the server's uid, too", () =>
      Effect.gen(function* () {
        const { base, server } = yield* place()
        const one = server({ volumes: volumes.filter(({ mode }) => mode === "cow") }, undefined, ONE)
        yield* one.make
        runAs(ONE.uid, one.files, "echo mine > conf/mine; echo mine > conf/a")
        const next = base("second", { "conf/a": "2", "lib/new/x": "2" })
        yield* one.renew(next)
        assert.deepStrictEqual(foreign(one.files, ONE.uid), [])
        assert.strictEqual(runAs(ONE.uid, one.files, "cat conf/mine conf/a"), "mine\n2")
        assert.strictEqual(foreign(next.folder, 0).length, 0)
      }).pipe(Effect.scoped)
    )

    it.effect("files that a daemon without uids made as root are chowned, and none is lost", () =>
      Effect.gen(function* () {
        const { first, server, volumes: sources } = yield* place()
        giveAll(first.folder, 0)
        const definition = { volumes: mounts ? volumes : volumes.filter(({ mode }) => mode === "cow") }
        const old = server(definition)
        yield* old.make
        write(old.files, { "world/level": "mine", "conf/own": "mine", "other/deep/new": "mine" })
        if (mounts) write(old.files, { "shared/mine": "mine" })
        execFileSync("rm", [join(old.files, "server.jar")])
        symlinkSync("/etc/passwd", join(old.files, "passwd"))
        const passwd = statSync("/etc/passwd").uid
        const now = server(definition, old.folder, ONE)
        // An interrupted chown: the top of a folder is always chowned last.
        const upper = join(old.folder, way.startsWith("overlay") ? "tree/upper" : "files")
        chownSync(join(upper, "conf/own"), ONE.uid, ONE.uid)
        // Either still mounted by that daemon, or unmounted by a restart of the machine.
        yield* now.open
        unmountBelow(old.folder)
        yield* now.open
        assert.deepStrictEqual(foreign(now.files, ONE.uid), [])
        assert.strictEqual(statSync("/etc/passwd").uid, passwd)
        const output = runAs(
          ONE.uid,
          now.files,
          "cat world/level conf/own other/deep/new; echo >> conf/a; echo x > conf/own; ls server.jar"
        )
        assert.match(output, /^mineminemine[^\n]*server.jar[^\n]*\n$/)
        if (mounts) {
          assert.strictEqual(runAs(ONE.uid, now.files, "cat shared/mine; echo y > shared/mine"), "mine")
          assert.strictEqual(readFileSync(join(sources, "s/mine"), "utf8"), "y\n")
        }
      }).pipe(Effect.scoped)
    )
  })
}

describe.runIf(asRoot)(`isolation, volumes shared by servers${needed}`, () => {
  const volume = { name: "s", source: "s", target: "shared", mode: "rw" } as const

  it.effect("rw: each server writes the others' files as its own; other users have no access", () =>
    Effect.gen(function* () {
      const { server, volumes: sources } = yield* scene()
      write(sources, { "s/sub/old": "old" })
      const [one, two] = [
        server({ volumes: [volume] }, undefined, ONE),
        server({ volumes: [volume] }, undefined, TWO)
      ]
      const none = server({}, undefined, SOFTWARE)
      yield* one.make
      yield* two.make
      yield* none.make
      assert.strictEqual(
        runAs(ONE.uid, one.files, "echo one > shared/new; chmod 600 shared/new; echo one >> shared/sub/old"),
        ""
      )
      assert.strictEqual(
        runAs(
          TWO.uid,
          two.files,
          "cat shared/new; echo two >> shared/new; chmod 640 shared/sub/old; stat -c %u:%g shared/new"
        ),
        `one\n${TWO.uid}:${TWO.uid}\n`
      )
      assert.strictEqual(readFileSync(join(sources, "s/new"), "utf8"), "one\ntwo\n")
      for (const path of [
        join(sources, "s/new"),
        join(one.files, "shared/new"),
        join(two.files, "shared/new")
      ]) {
        const attack = runAs(SOFTWARE.uid, none.files, `cat ${path}; echo x >> ${path}`)
        assert.notInclude(attack, "one")
      }
      // A set-uid program in it must not run as root, even if copied elsewhere.
      runAs(ONE.uid, one.files, "cp /usr/bin/id shared/id; chmod 6755 shared/id")
      assert.notStrictEqual(statSync(join(sources, "s/id")).uid, 0)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "rw without mapped owners: only one server may have it; the refusal of a second one names the first",
    () =>
      Effect.gen(function* () {
        const { server, service, volumes: sources } = yield* scene({ mounts: false })
        write(sources, { "s/old": "old" })
        const [one, two] = [
          server({ volumes: [volume] }, undefined, ONE),
          server({ volumes: [volume] }, undefined, TWO)
        ]
        service.register(one.folder, one.spec)
        yield* one.make
        assert.deepStrictEqual(foreign(join(sources, "s"), ONE.uid), [])
        service.register(two.folder, two.spec)
        const error = yield* Effect.flip(two.make)
        assert.strictEqual(error.code, "REFUSED")
        assert.include(error.message, one.spec.id)
        assert.include(error.next ?? "", "a volume of its own")
        assert.deepStrictEqual(foreign(join(sources, "s"), ONE.uid), [])
      }).pipe(Effect.scoped)
  )

  it.effect("a mount of the host is written with the uid of its owner, never as root", () =>
    Effect.gen(function* () {
      const { allowed, server } = yield* scene()
      mkdirSync(join(allowed, "roots"))
      giveAll(join(allowed, "maps"), 1234)
      const mount = (name: string) => ({ source: join(allowed, name), target: name, mode: "rw" }) as const
      const one = server({ mounts: [mount("maps"), mount("roots")] }, undefined, ONE)
      yield* one.make
      const output = runAs(
        ONE.uid,
        one.files,
        "echo x > maps/new; cp /usr/bin/id roots/id; chmod 6755 roots/id"
      )
      assert.match(output, /denied/)
      assert.strictEqual(statSync(join(allowed, "maps/new")).uid, 1234)
      assert.deepStrictEqual(readdirSync(join(allowed, "roots")), [])
    }).pipe(Effect.scoped)
  )

  it.effect("cow: a volume with several owners is copied, so that all files have the server's uid", () =>
    Effect.gen(function* () {
      const { server, volumes: sources } = yield* scene()
      write(sources, { "w/a": "a", "w/deep/b": "b" })
      chownSync(join(sources, "w/deep/b"), 1234, 1234)
      chmodSync(join(sources, "w/deep/b"), 0o600)
      const one = server({ volumes: [{ name: "w", source: "w", target: "w", mode: "cow" }] }, undefined, ONE)
      yield* one.make
      assert.deepStrictEqual(foreign(one.files, ONE.uid), [])
      assert.strictEqual(runAs(ONE.uid, one.files, "cat w/deep/b; echo more >> w/deep/b"), "b")
      assert.strictEqual(lstatSync(join(sources, "w/deep/b")).uid, 1234)
    }).pipe(Effect.scoped)
  )
})
