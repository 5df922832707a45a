import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"

describe("muster: usage errors", () => {
  it.live("a mistake is one line; a second line names the help", () =>
    Effect.gen(function* () {
      for (const [args, mistake, help] of [
        [["kyes"], 'Unknown subcommand "kyes" for "muster". Did you mean muster keys?', "muster"],
        [
          ["server", "list"],
          'Unknown subcommand "server" for "muster". Did you mean muster servers?',
          "muster"
        ],
        [
          ["servers", "lst"],
          'Unknown subcommand "lst" for "muster servers". Did you mean muster servers list?',
          "muster servers"
        ],
        [
          ["audit", "list"],
          'Unexpected positional argument: "list". Did you mean muster audit?',
          "muster audit"
        ],
        [["keys", "create"], "Missing required flag: --name", "muster keys create"],
        [["serve", "--prot", "80"], /^Unrecognized flag: --prot in command muster serve$/, "muster serve"],
        [
          ["keys", "create", "--name", "x", "--expires", "5\u001b[31my"],
          /^Invalid value for flag --expires: .*; expected a time such as 90m, 12h or 30d$/,
          "muster keys create"
        ],
        [
          ["audit", "--limit", "x"],
          'Invalid value for flag --limit: "x"; expected a whole number',
          "muster audit"
        ],
        [
          ["nodes", "drain", "x", "--parallel", "1.5"],
          'Invalid value for flag --parallel: "1.5"; expected a whole number',
          "muster nodes drain"
        ],
        [
          ["servers", "stop", "x", "--grace", "2h"],
          /^Invalid value for flag --grace: .*expected at most 1h$/,
          "muster servers stop"
        ]
      ] as const) {
        const { code, stderr, stdout } = yield* muster(args)
        assert.strictEqual(code, 64)
        assert.strictEqual(stdout, "")
        const [line = "", hint, ...rest] = stderr.trimEnd().split("\n")
        if (typeof mistake === "string") assert.strictEqual(line, mistake)
        else assert.match(line, mistake)
        assert.strictEqual(hint, `See ${help} --help.`)
        assert.deepStrictEqual(rest, [])
        assert.notInclude(stderr, "\u001b")
      }
      const service = { MUSTER_URL: "http://127.0.0.1:1", MUSTER_API_KEY: "x" }
      const invalid = yield* muster(["audit", "--limit", "5000"], service)
      assert.deepStrictEqual([invalid.code, invalid.stdout], [64, ""])
      assert.match(invalid.stderr, /^limit: .* 1 to 1000\.\n$/)
      const both = yield* muster(["servers", "crashes", "lobby", "--since", "1h"], service)
      assert.strictEqual(both.code, 64)
      assert.match(both.stderr, /^--since, --blueprint and --node .*: leave out the server\.\n$/)
      const { code, stdout } = yield* muster(["keys", "create", "--help"])
      assert.strictEqual(code, 0)
      assert.match(stdout, /--expires/)
    })
  )
})
