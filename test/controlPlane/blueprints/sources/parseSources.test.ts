import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import {
  gitAddress,
  gitRef,
  parseSources
} from "../../../../src/controlPlane/blueprints/sources/parseSources.ts"

const parse = (text: string) => parseSources("sources.yml", new TextEncoder().encode(text))

const problemsOf = (text: string) =>
  parse(text).problems.map(({ column, line, reason }) => `${line}:${column}: ${reason}`)

const one = (...lines: ReadonlyArray<string>) =>
  ["sources:", "  - id: a", ...lines.map((line) => `    ${line}`)].join("\n")

describe("sources: the file", () => {
  it("the file is a list of repositories; all fields except id and url have defaults", () => {
    const { problems, sources } = parse(`
sources:
  - id: team-a
    url: https://bot@git.example.com/team-a/worlds.git
    kind: software
    ref: release/1.2
    path: ./game/software/
    destination: teams/a
    token-env: TEAM_A_TOKEN
    ca_file: ca.pem
    timeout: 5
    x-note: free
  - { id: team-b, url: "git@git.example.com:team-b/worlds.git" }
`)
    assert.deepStrictEqual(problems, [])
    assert.deepStrictEqual(sources, [
      {
        id: "team-a",
        kind: "software",
        address: { url: "https://git.example.com/team-a/worlds.git", protocol: "https", user: "bot" },
        ref: "release/1.2",
        path: "game/software",
        destination: "teams/a",
        token: { env: "TEAM_A_TOKEN" },
        ca_file: "ca.pem",
        timeout: 5
      },
      {
        id: "team-b",
        kind: "blueprints",
        address: { url: "git@git.example.com:team-b/worlds.git", protocol: "ssh", user: undefined },
        ref: undefined,
        path: "",
        destination: "team-b",
        token: undefined,
        ca_file: undefined,
        timeout: 60
      }
    ])
    assert.deepStrictEqual(parse("sources: []"), { sources: [], problems: [] })
  })

  it("an error has line, column and a suggestion", () => {
    assert.deepStrictEqual(problemsOf(""), ["1:1: the file is empty"])
    assert.deepStrictEqual(problemsOf("source: []"), [
      "1:1: unknown key `source`; did you mean `sources`?",
      "1:1: `sources` is missing"
    ])
    assert.deepStrictEqual(problemsOf("sources: {}"), ["1:10: expected a list, found a mapping"])
    assert.deepStrictEqual(problemsOf("sources: [{}]"), [
      "1:11: `sources.id` is missing",
      "1:11: `sources.url` is missing"
    ])
    assert.deepStrictEqual(problemsOf(one("url: /r", "refs: main", "tokenenv: A")), [
      "4:5: unknown key `refs`; did you mean `ref`?",
      "5:5: unknown key `tokenenv`; did you mean `token_env`?"
    ])
    assert.deepStrictEqual(problemsOf(one("url: /r", "kind: mods", "timeout: 0")), [
      '4:11: expected blueprints or software, found the text "mods"',
      "5:14: expected a value between 1 and 600, found 0"
    ])
    assert.deepStrictEqual(problemsOf(one("url: https://h/r", "token_env: A", "token_file: t")), [
      "5:17: `token_env` is there already; a source has one token"
    ])
    assert.deepStrictEqual(problemsOf(one("url: /r", "token_file: t")), [
      "4:17: `token_file` goes with an https address only"
    ])
    assert.deepStrictEqual(problemsOf(one("url: ssh://h/r", "ca_file: t")), [
      "4:14: `ca_file` goes with an https address only"
    ])
    assert.deepStrictEqual(problemsOf(one("url: /r", "token_env: mst secret")).length, 1)
  })

  it("paths and destinations outside the folder or in ignored folders are refused", () => {
    for (const [key, value] of [
      ["path", "../up"],
      ["path", "/etc"],
      ["path", "a/../../b"],
      ["destination", ".."],
      ["destination", "/etc"],
      ["destination", "a/.hidden"],
      ["destination", ".muster-sources"],
      ["destination", "."]
    ] as const) {
      assert.lengthOf(problemsOf(one("url: /r", `${key}: ${JSON.stringify(value)}`)), 1, `${key}: ${value}`)
    }
  })

  it("ids are unique; destinations of one kind do not overlap", () => {
    const both = (a: string, b: string) =>
      problemsOf(`sources:\n  - { id: a, url: /r, ${a} }\n  - { id: b, url: /r, ${b} }`)
    assert.deepStrictEqual(problemsOf("sources:\n  - { id: a, url: /r }\n  - { id: a, url: /s }"), [
      "3:11: the id `a` is there twice"
    ])
    assert.deepStrictEqual(both("destination: x", "destination: ./x/"), [
      "3:36: the destination `x` is the folder of source `a` (`x`)"
    ])
    assert.deepStrictEqual(both("destination: x", "destination: x/y"), [
      "3:36: the destination `x/y` is a folder inside or around that of source `a` (`x`)"
    ])
    assert.deepStrictEqual(both("destination: b/c", "ref: main"), [
      "3:5: the destination `b` is a folder inside or around that of source `a` (`b/c`)"
    ])
    assert.deepStrictEqual(both("destination: x", "destination: xy"), [])
    assert.deepStrictEqual(both("destination: x, kind: software", "destination: x"), [])
  })
})

describe("sources: addresses", () => {
  it("https, ssh and file URLs are accepted; no others", () => {
    for (const url of [
      "https://git.example.com/a/b.git",
      "https://git.example.com:8443/a",
      "ssh://git@git.example.com:2222/a/b.git",
      "git@git.example.com:a/b.git",
      "git@[::1]:a/b.git",
      "file:///srv/git/a.git",
      "/srv/git/a b.git"
    ]) {
      assert.isTrue(Result.isSuccess(gitAddress(url)), url)
    }
    for (const url of [
      "http://git.example.com/a",
      "git://git.example.com/a",
      "ext::sh -c touch% /tmp/x",
      "fd::17",
      "--upload-pack=touch /tmp/x",
      "-oProxyCommand=x:y",
      "ssh://-oProxyCommand=x/y",
      "ssh://git@-oProxyCommand=x/y",
      "ssh://-o@host/y",
      "ssh://user:secret@host/y",
      "-x@host:path",
      "user@-host:path",
      "user@host:-path",
      "host:path",
      "relative/path",
      "../up",
      "",
      "/",
      "file://host/path",
      "file:relative",
      "https://",
      "https://host/a?b=c",
      "https://host/a#b",
      "https://user:secret@host/a",
      "https://host/\n/b",
      "/a\0b",
      "HTTPS:host",
      "ftp://host/a"
    ]) {
      assert.isTrue(Result.isFailure(gitAddress(url)), url)
    }
  })

  it("a password in an address is refused, and is not in the message", () => {
    const [problem = ""] = problemsOf(one("url: https://user:hunter2@h/r"))
    assert.include(problem, "token_env")
    assert.notInclude(problem, "hunter2")
  })
})

describe("sources: refs", () => {
  it("names that git allows are accepted; options and refspecs are refused", () => {
    for (const ref of ["main", "v1.2.3", "feature/x-1", "a@b", "grün", "f".repeat(40), "refs/heads/main"]) {
      assert.isTrue(Result.isSuccess(gitRef(ref)), ref)
    }
    for (const ref of [
      "--upload-pack=touch /tmp/x",
      "-f",
      "a:b",
      "+main",
      "a b",
      "a..b",
      "a~1",
      "a^",
      "a^{tree}",
      "main@{1}",
      "@",
      "refs/*",
      "a//b",
      "/a",
      "a/",
      ".a",
      "a/.b",
      "a.",
      "a.lock",
      "a.lock/b",
      "a\\b",
      "a[",
      "a?",
      "\u0000",
      "x".repeat(256)
    ]) {
      // Git allows `+main`; it is the branch of that name.
      assert.strictEqual(Result.isFailure(gitRef(ref)), ref !== "+main", ref)
    }
    assert.deepStrictEqual(problemsOf(one("url: /r", 'ref: "--upload-pack=touch /tmp/x"')), [
      "4:10: the ref `--upload-pack=touch /tmp/x` is no name of a branch or tag, and no commit id"
    ])
  })

  it("any text is read without a defect; no accepted text begins an option", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const address = gitAddress(text)
        if (Result.isSuccess(address)) assert.notMatch(address.success.url, /^-/)
        const ref = gitRef(text)
        if (Result.isSuccess(ref)) assert.notMatch(ref.success, /^-|[:\s]/)
        parse(`sources: [{ id: a, url: ${JSON.stringify(text)}, ref: ${JSON.stringify(text)} }]`)
      }),
      { numRuns: 500 }
    )
  })
})
