import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { freePorts } from "../../../support/ports.ts"
import { blueprintFile } from "../support.ts"
import { errorOf, gitServer, ids, reload, silentServer, sourcesSetup, tls, withStores } from "./support.ts"

const token = "tok_0123456789abcdef"
const basic = Buffer.from(`x-access-token:${token}`).toString("base64")
const ca_file = join(tls, "cert.pem")

/** Returns all files below a folder as one text. */
const textBelow = (folder: string): string =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "latin1"))
    .join("\n")

/** Returns the command lines of all processes. */
const commandLines = () =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8")
      } catch {
        return "" // The process has ended.
      }
    })
    .join("\n")

describe("sources: over HTTPS, with a token", () => {
  it.live("the token is from a variable or a file; it appears in the header only", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("team/worlds.git")
      const commit = repository.commit({ "a.yml": blueprintFile("a") })
      const server = yield* gitServer(setup.root, { token })
      const url = server.url("team/worlds.git")
      writeFileSync(join(setup.root, "token"), `${token}\n`)
      setup.list([
        { id: "env", url, ca_file, token_env: "TEAM_TOKEN", destination: "one" },
        { id: "file", url, ca_file, token_file: "token", destination: "two" },
        { id: "commit", url, ca_file, token_file: "token", ref: commit, kind: "software", path: "." }
      ])
      const log: Array<string> = []
      yield* withStores(
        setup,
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
      for (const text of [textBelow(setup.data), textBelow(setup.blueprints), log.join("\n")]) {
        assert.notInclude(text, token)
        assert.notInclude(text, basic)
      }
    })
  )

  it.live("the user of the address is sent with the token", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      setup.repository("r.git").commit({ "a.yml": blueprintFile("a") })
      const server = yield* gitServer(setup.root, { token, user: "deploy bot" })
      const url = server.url("r.git").replace("//", "//deploy%20bot@")
      setup.list([{ id: "s", url, ca_file, token_env: "T" }])
      assert.deepStrictEqual(yield* withStores(setup, ids, { environment: { T: token } }), ["a"])
    })
  )

  it.live("a missing, empty or refused token is named as the cause, and its value is not in a message", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      setup.repository("r.git").commit({ "a.yml": blueprintFile("a") })
      const url = (yield* gitServer(setup.root, { token })).url("r.git")
      writeFileSync(join(setup.root, "empty"), "\n")
      writeFileSync(join(setup.root, "two"), "a\nb\n")
      setup.list([
        { id: "s1", url, ca_file },
        { id: "s2", url, ca_file, token_env: "WRONG" },
        { id: "s3", url, ca_file, token_env: "UNSET" },
        { id: "s4", url, ca_file, token_file: "none" },
        { id: "s5", url, ca_file, token_file: "empty" },
        { id: "s6", url, ca_file, token_file: "two" },
        { id: "s7", url, token_env: "WRONG" }
      ])
      const log: Array<string> = []
      yield* withStores(
        setup,
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

  it.live("an address without a repository is named, without its user", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const server = yield* gitServer(setup.root)
      const elsewhere = yield* gitServer(setup.root, { says: "<!doctype html>\n<title>Welcome</title>\n" })
      setup.list([
        { id: "none", url: server.url("none.git").replace("//", "//deploy@"), ca_file },
        { id: "site", url: elsewhere.url("site"), ca_file }
      ])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.strictEqual(yield* errorOf("none"), `no repository at ${server.url("none.git")}`)
          assert.strictEqual(yield* errorOf("site"), `no repository at ${elsewhere.url("site")}`)
        })
      )
    })
  )

  it.live("with a token a redirect is refused; without one it is followed", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      setup.repository("r.git").commit({ "a.yml": blueprintFile("a") })
      const other = yield* gitServer(setup.root)
      const url = (yield* gitServer(setup.root, { elsewhere: other.url("").slice(0, -1) })).url("r.git")
      setup.list([{ id: "s", url, ca_file, token_env: "T" }])
      const reason = yield* withStores(setup, errorOf("s"), { environment: { T: token } })
      assert.match(reason ?? "", /unable to access .*302/)
      assert.deepStrictEqual(other.logins, [])
      setup.list([{ id: "s", url, ca_file }])
      assert.deepStrictEqual(yield* withStores(setup, ids), ["a"])
    })
  )

  it.live("an unreachable server is an error; a silent one ends with the timeout", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const silent = yield* silentServer
      const closed = yield* freePorts(1)
      setup.list([
        { id: "gone", url: `https://127.0.0.1:${closed}/r.git` },
        {
          id: "silent",
          url: `https://127.0.0.1:${silent.port}/r.git`,
          timeout: 1,
          ca_file,
          token_env: "T"
        }
      ])
      yield* withStores(
        setup,
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
          // The check ran while git was running; no git process is left.
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
  it.live("the ssh of the service is used, in batch mode", () =>
    Effect.gen(function* () {
      const setup = yield* sourcesSetup
      const repository = setup.repository("worlds")
      repository.commit({ "a.yml": blueprintFile("a") })
      const bin = join(setup.root, "bin")
      mkdirSync(bin)
      // A fake ssh: records its arguments, and runs the remote command locally.
      writeFileSync(
        join(bin, "ssh"),
        `#!/bin/sh\necho "$@" >> ${setup.root}/calls\nfor last; do :; done\nexec sh -c "$last"\n`
      )
      chmodSync(join(bin, "ssh"), 0o755)
      setup.list([
        { id: "one", url: `git@git.example.com:${repository.folder}`, kind: "blueprints" },
        { id: "two", url: `ssh://git.example.com:2222${repository.folder}`, destination: "d" }
      ])
      yield* withStores(
        setup,
        Effect.gen(function* () {
          assert.isNull(yield* errorOf("one"))
          assert.deepStrictEqual(yield* ids, ["a"])
        }),
        { environment: { PATH: `${bin}:${process.env.PATH}` } }
      )
      const calls = readFileSync(join(setup.root, "calls"), "utf8").trim().split("\n").toSorted()
      assert.lengthOf(calls, 2)
      for (const call of calls) assert.match(call, /^-o BatchMode=yes -o ConnectTimeout=15 /)
      assert.match(calls.join("\n"), / git@git\.example\.com git-upload-pack '/)
      assert.match(calls.join("\n"), / -p 2222 git\.example\.com git-upload-pack '/)
    })
  )
})
