import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { freePorts } from "../../support/ports.ts"
import { blueprintFile } from "../support.ts"
import { errorOf, gitServer, ids, reload, silentServer, started, tls, world } from "./support.ts"

const token = "tok_0123456789abcdef"
const basic = Buffer.from(`x-access-token:${token}`).toString("base64")
const ca_file = join(tls, "cert.pem")

/** Everything below a folder, as one text. */
const textBelow = (folder: string): string =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "latin1"))
    .join("\n")

/** Command lines of all processes. */
const commandLines = () =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8")
      } catch {
        return "" // it has ended
      }
    })
    .join("\n")

describe("sources: over HTTPS, with a token", () => {
  it.live("from a variable or a file; it is nowhere but in the header", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("team/worlds.git")
      const commit = repository.commit({ "a.yml": blueprintFile("a") })
      const server = yield* gitServer(here.root, { token })
      const url = server.url("team/worlds.git")
      writeFileSync(join(here.root, "token"), `${token}\n`)
      here.list([
        { id: "env", url, ca_file, token_env: "TEAM_TOKEN", destination: "one" },
        { id: "file", url, ca_file, token_file: "token", destination: "two" },
        { id: "commit", url, ca_file, token_file: "token", ref: commit, kind: "software", path: "." }
      ])
      const log: Array<string> = []
      yield* started(
        here,
        Effect.gen(function* () {
          assert.isNull(yield* errorOf("env"))
          assert.isNull(yield* errorOf("file"))
          assert.match(log.join(), /two\/a\.yml:1:18: the blueprint id `a` is taken by one\/a\.yml:1/)
          assert.match(log.join(), /a\.yml:1:1: a `blueprint:` file belongs in the blueprints folder/)
          assert.deepStrictEqual(yield* ids, ["a"])
        }),
        { log, environment: { TEAM_TOKEN: token } }
      )
      assert.deepStrictEqual([...new Set(server.logins)], [`Basic ${basic}`])
      for (const text of [textBelow(here.data), textBelow(here.blueprints), log.join("\n")]) {
        assert.notInclude(text, token)
        assert.notInclude(text, basic)
      }
    })
  )

  it.live("the user of the address goes with it", () =>
    Effect.gen(function* () {
      const here = yield* world
      here.repository("r.git").commit({ "a.yml": blueprintFile("a") })
      const server = yield* gitServer(here.root, { token, user: "deploy bot" })
      const url = server.url("r.git").replace("//", "//deploy%20bot@")
      here.list([{ id: "s", url, ca_file, token_env: "T" }])
      assert.deepStrictEqual(yield* started(here, ids, { environment: { T: token } }), ["a"])
    })
  )

  it.live("a token that is missing, empty or refused is named as such, and never repeated", () =>
    Effect.gen(function* () {
      const here = yield* world
      here.repository("r.git").commit({ "a.yml": blueprintFile("a") })
      const url = (yield* gitServer(here.root, { token })).url("r.git")
      writeFileSync(join(here.root, "empty"), "\n")
      writeFileSync(join(here.root, "two"), "a\nb\n")
      here.list([
        { id: "s1", url, ca_file },
        { id: "s2", url, ca_file, token_env: "WRONG" },
        { id: "s3", url, ca_file, token_env: "UNSET" },
        { id: "s4", url, ca_file, token_file: "none" },
        { id: "s5", url, ca_file, token_file: "empty" },
        { id: "s6", url, ca_file, token_file: "two" },
        { id: "s7", url, token_env: "WRONG" }
      ])
      const log: Array<string> = []
      yield* started(
        here,
        Effect.gen(function* () {
          assert.strictEqual(
            yield* errorOf("s1"),
            "the server asks for a login; set `token_env` or `token_file`"
          )
          assert.strictEqual(yield* errorOf("s2"), "the server refuses the token")
          assert.strictEqual(yield* errorOf("s3"), "the variable UNSET is not set")
          assert.strictEqual(yield* errorOf("s4"), "the file of its token cannot be read: it does not exist")
          assert.strictEqual(yield* errorOf("s5"), "the file of its token is empty")
          assert.strictEqual(yield* errorOf("s6"), "its token has more than one line, or control characters")
          assert.match((yield* errorOf("s7")) ?? "", /certificate verif/)
        }),
        { log, environment: { WRONG: "wrong-token" } }
      )
      assert.notInclude(log.join("\n"), "wrong-token")
    })
  )

  it.live("an address where there is no repository is named, without its user", () =>
    Effect.gen(function* () {
      const here = yield* world
      const server = yield* gitServer(here.root)
      const elsewhere = yield* gitServer(here.root, { says: "<!doctype html>\n<title>Welcome</title>\n" })
      here.list([
        { id: "none", url: server.url("none.git").replace("//", "//deploy@"), ca_file },
        { id: "site", url: elsewhere.url("site"), ca_file }
      ])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.strictEqual(yield* errorOf("none"), `no repository at ${server.url("none.git")}`)
          assert.strictEqual(yield* errorOf("site"), `no repository at ${elsewhere.url("site")}`)
        })
      )
    })
  )

  it.live("it does not follow a redirect; without one, a redirect is followed", () =>
    Effect.gen(function* () {
      const here = yield* world
      here.repository("r.git").commit({ "a.yml": blueprintFile("a") })
      const other = yield* gitServer(here.root)
      const url = (yield* gitServer(here.root, { elsewhere: other.url("").slice(0, -1) })).url("r.git")
      here.list([{ id: "s", url, ca_file, token_env: "T" }])
      const reason = yield* started(here, errorOf("s"), { environment: { T: token } })
      assert.match(reason ?? "", /unable to access .*302/)
      assert.deepStrictEqual(other.logins, [])
      here.list([{ id: "s", url, ca_file }])
      assert.deepStrictEqual(yield* started(here, ids), ["a"])
    })
  )

  it.live("a server that is not there is a reason; one that says nothing ends with the timeout", () =>
    Effect.gen(function* () {
      const here = yield* world
      const silent = yield* silentServer
      const closed = yield* freePorts(1)
      here.list([
        { id: "gone", url: `https://127.0.0.1:${closed}/r.git` },
        {
          id: "silent",
          url: `https://127.0.0.1:${silent.port}/r.git`,
          timeout: 1,
          ca_file,
          token_env: "T"
        }
      ])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.match((yield* errorOf("gone")) ?? "", /unable to access .*: Failed to connect/)
          assert.strictEqual(yield* errorOf("silent"), "not done within 1 s")
          assert.isAbove(silent.connections(), 0)
          const before = silent.connections()
          let lines = ""
          const look = Effect.sync(() => {
            lines += commandLines()
          }).pipe(Effect.andThen(Effect.sleep("20 millis")), Effect.forever)
          const error = yield* Effect.flip(Effect.raceFirst(reload, look))
          assert.match(error.detail, /source silent: not done within 1 s/)
          assert.isAbove(silent.connections(), before)
          // It was looked at while git ran, and no git is left of it.
          assert.include(lines, `127.0.0.1:${silent.port}`)
          assert.notInclude(lines, token)
          assert.notInclude(lines, basic)
          assert.notInclude(commandLines(), `127.0.0.1:${silent.port}`)
        }),
        { environment: { T: token } }
      )
    })
  )
})

describe("sources: over ssh", () => {
  it.live("the service's own ssh is used, never asking", () =>
    Effect.gen(function* () {
      const here = yield* world
      const repository = here.repository("worlds")
      repository.commit({ "a.yml": blueprintFile("a") })
      const bin = join(here.root, "bin")
      mkdirSync(bin)
      // Stands in for ssh: notes how it was called, and runs the far side here.
      writeFileSync(
        join(bin, "ssh"),
        `#!/bin/sh\necho "$@" >> ${here.root}/calls\nfor last; do :; done\nexec sh -c "$last"\n`
      )
      chmodSync(join(bin, "ssh"), 0o755)
      here.list([
        { id: "one", url: `git@git.example.com:${repository.folder}`, kind: "blueprints" },
        { id: "two", url: `ssh://git.example.com:2222${repository.folder}`, destination: "d" }
      ])
      yield* started(
        here,
        Effect.gen(function* () {
          assert.isNull(yield* errorOf("one"))
          assert.deepStrictEqual(yield* ids, ["a"])
        }),
        { environment: { PATH: `${bin}:${process.env.PATH}` } }
      )
      const calls = readFileSync(join(here.root, "calls"), "utf8").trim().split("\n").toSorted()
      assert.lengthOf(calls, 2)
      for (const call of calls) assert.match(call, /^-o BatchMode=yes -o ConnectTimeout=15 /)
      assert.match(calls.join("\n"), / git@git\.example\.com git-upload-pack '/)
      assert.match(calls.join("\n"), / -p 2222 git\.example\.com git-upload-pack '/)
    })
  )
})
