import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../support/command.ts"

describe("muster: usage errors", () => {
  it.live("a mistake is one line; a second line names the help", () =>
    Effect.gen(function* () {
      for (const [args, mistake, help] of [
        [["kyes"], 'Unknown subcommand "kyes" for "muster". Did you mean keys?', "muster"],
        [["keys", "create"], "Missing required flag: --name", "muster keys create"],
        [["serve", "--prot", "80"], /^Unrecognized flag: --prot in command muster serve$/, "muster serve"],
        [
          ["keys", "create", "--name", "x", "--expires", "5\u001b[31my"],
          /^Invalid value for flag --expires: .*; expected a time such as 90m, 12h or 30d$/,
          "muster keys create"
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
      const { code, stdout } = yield* muster(["keys", "create", "--help"])
      assert.strictEqual(code, 0)
      assert.match(stdout, /--expires/)
    })
  )
})
