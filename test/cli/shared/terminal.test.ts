import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { shown } from "../../../src/cli/shared/terminal.ts"
import { muster } from "../../support/command.ts"

const ID = "k7f3m1x9q2ab"

const listed = {
  id: ID,
  blueprint_id: "b",
  node_name: "n",
  node_id: "n",
  allocations: {
    force_outgoing_ip: false,
    default: { ip: "127.0.0.1", port: 1 },
    alias: "",
    mappings: { "127.0.0.1": [1] }
  },
  status: "running"
}

const lines = {
  meta: { pagination: { total: 1, per_page: 100, current_page: 1, total_pages: 1 } },
  data: ["<player> \u001b]52;c;cm0gLXJm\u0007\u001b[2J\u001b[31mhello\u001b[0m"]
}

/** A service with one server, whose console has a hostile line. */
const service = Effect.acquireRelease(
  Effect.callback<ReturnType<typeof createServer>>((resume) => {
    const made = createServer(({ url = "" }, response) => {
      response.setHeader("content-type", "application/json")
      response.end(JSON.stringify(url.includes("/logs") ? lines : [listed]))
    })
    made.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
  }),
  (made) => Effect.sync(() => made.close())
)

describe("spec 8.2: a text of a server acts on no terminal", () => {
  it("colours, line breaks and tabs stay; titles, links, the clipboard, the cursor and requests for answers go", () => {
    expect(shown("\u001b[1;38:5:9mred\u001b[0m\n\tnext")).toBe("\u001b[1;38:5:9mred\u001b[0m\n\tnext")
    for (const hostile of [
      "\u001b]0;title\u0007",
      "\u001b]8;;http://evil\u001b\\",
      "\u001b]52;c;cm0gLXJm\u0007",
      "\u001b[2J\u001b[H",
      "\u001b[6n\u001b[c\u001bZ",
      "\u001b]0;\u001b[31mtitle",
      "\u009b2J",
      "\r\b\u0000",
      "\u202e"
    ]) {
      // Nothing acts: what may be left of a broken sequence is plain text.
      expect(shown(`a${hostile}b`), JSON.stringify(hostile)).toMatch(
        // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are the only sequences
        /^a(?:[\x20-\x7e]|\u001b\[31m)*b$/
      )
    }
    expect(shown("a\u001b]0;title\u0007\u001b[2Jb")).toBe("ab")
  })

  it.live("a command prints the console of a server so", () =>
    Effect.gen(function* () {
      const server = yield* service
      // The address of a TCP server is no path.
      const { port } = server.address() as AddressInfo
      const env = { MUSTER_URL: `http://127.0.0.1:${port}`, MUSTER_API_KEY: "x" }
      const { stderr, stdout } = yield* muster(["servers", "logs", ID], env)
      expect(stdout, stderr).toBe("<player> \u001b[31mhello\u001b[0m\n")
    })
  )
})
