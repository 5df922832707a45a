import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { overlap } from "../../src/dashboard/dom/overlap.ts"
import { cleanLine } from "../../src/dashboard/pages/server/consoleStream.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { definitions } from "../support/definitions.ts"
import { Muster } from "../support/Muster.ts"
import { freePort } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { create, expectStatus, installed, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { assertClean, browser, openPage, shows, slow, status, step } from "./browser.ts"
import { games } from "./definitions.ts"

const script = "<img src=x onerror=alert(1)><script>alert(2)</script>"

describe("dashboard: lines of a console", () => {
  it("a line keeps its colours and loses every other sequence and control character", () => {
    const cases: ReadonlyArray<readonly [string, string]> = [
      ["plain", "plain"],
      ["\u001b[31mred\u001b[0m", "\u001b[31mred\u001b[0m\u001b[0m"],
      ["\u001b[38;2;1;2;3mx", "\u001b[38;2;1;2;3mx\u001b[0m"],
      ["a\u001b[2J\u001b[Hb", "ab"],
      ["a\u001b]0;title\u0007b", "ab"],
      ["a\u001b]52;c;AAAA\u001b\\b", "ab"],
      ["a\u001bPdevice\u001b\\b\u001bc", "ab"],
      ["a\u009b2Jb\u0007\b\r", "a2Jb"],
      ["a\u202eb", "ab"],
      ["cut\u001b[", "cut"],
      ["cut\u001b", "cut"],
      ["tab\there", "tab\there"]
    ]
    for (const [line, clean] of cases) assert.strictEqual(cleanLine(line), clean)
  })

  it("live lines that the stored ones have already are found", () => {
    assert.strictEqual(overlap(["a", "b", "c"], ["b", "c", "d"]), 2)
    assert.strictEqual(overlap(["a", "b"], ["c"]), 0)
    assert.strictEqual(overlap([], ["c"]), 0)
    assert.strictEqual(overlap(["x", "x"], ["x", "x", "x"]), 2)
  })
})

describe.runIf(chromium !== undefined)(`dashboard: what servers send${chromiumNote}`, () => {
  layer(Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27000-27099" }), {
    ...slow,
    excludeTestServices: true
  })((it) => {
    it.effect(
      "names, labels and console lines are texts, whatever they contain",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* create(api, "hostile", { name: script, labels: { note: script }, start: true })
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          yield* status(page, id, "running")
          assert.strictEqual(yield* step(() => page.locator(`#row-${id} .server-link`).textContent()), script)
          yield* step(() => page.locator(`#row-${id} .server-link`).click())
          yield* step(() => page.getByRole("heading", { name: script }).waitFor())
          const output = page.locator(".xterm-rows")
          yield* step(() => output.getByText("ready").waitFor())
          const lines = yield* step(() => output.locator("> div").allInnerTexts())
          assert.deepStrictEqual(lines.map((line) => line.replaceAll("\u00a0", " ").trim()).filter(Boolean), [
            "first line",
            "link <img src=x onerror=alert(1)> red green end",
            "ready"
          ])
          assert.notInclude(yield* step(() => page.title()), "owned")
          yield* step(() => page.goto(`${api.url}/dashboard/events`))
          yield* shows(page, script)
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })

  it.live(
    "after a kill of the service the page resumes and has the changes of the meantime",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const dataDir = join(yield* temporaryFolder, "data")
        const settings = {
          ...env,
          MUSTER_PORT: String(yield* freePort),
          MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27100-27199"
        }
        const start = startService({ dataDir, env: settings })
        const first = yield* start
        const kept = yield* running(first, "kept")
        const opened = yield* openPage(yield* browser, first, "/dashboard")
        const { page } = opened
        yield* status(page, kept, "running")
        yield* step(() => page.getByRole("button", { name: /^Connection: Live/ }).waitFor())
        yield* first.kill("SIGKILL")
        yield* step(() => page.getByRole("button", { name: /^Connection: Reconnecting/ }).waitFor())
        yield* shows(page, /Connection lost/)
        const second = yield* start
        const made = yield* installed(second, "kept")
        yield* step(() =>
          page.getByRole("button", { name: /^Connection: Live. Resumed after change \d+/ }).waitFor()
        )
        yield* status(page, made, "offline")
        yield* step(() => page.locator(`#row-${kept}`).waitFor())
        yield* assertClean(opened)
      }).pipe(Effect.scoped),
    slow
  )

  it.live(
    "a page whose cursor the service does not know reads the list again",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const settings = {
          ...env,
          MUSTER_PORT: String(yield* freePort),
          MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27200-27299"
        }
        const first = yield* startService({ env: settings })
        const lost = [yield* installed(first, "kept"), yield* installed(first, "kept")]
        const opened = yield* openPage(yield* browser, first, "/dashboard")
        const { page } = opened
        for (const id of lost) yield* status(page, id, "offline")
        yield* step(() => page.getByRole("button", { name: /^Connection: Live/ }).waitFor())
        yield* first.kill("SIGKILL")
        // A database that was restored has no change of this cursor.
        const second = yield* startService({ env: settings })
        yield* step(() =>
          page.getByRole("button", { name: /^Connection: Live. Changes were missed/ }).waitFor()
        )
        for (const id of lost) yield* step(() => page.locator(`#row-${id}`).waitFor({ state: "detached" }))
        const made = yield* installed(second, "kept")
        yield* status(page, made, "offline")
        yield* assertClean(opened)
      }).pipe(Effect.scoped),
    slow
  )

  it.live(
    "a key that is revoked ends the session",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const api = yield* startService({ env })
        const { json } = yield* expectStatus(api, 201, "POST", "/api/keys", {
          body: { name: "guest", scope: "ReadOnly" }
        })
        const opened = yield* openPage(yield* browser, api, "/dashboard", { key: json.key })
        const { page } = opened
        yield* step(() => page.getByRole("button", { name: /^Connection: Live/ }).waitFor())
        yield* expectStatus(api, 200, "DELETE", `/api/keys/${json.id}`)
        yield* step(() => page.getByLabel("API key").waitFor())
        yield* assertClean(opened)
      }).pipe(Effect.scoped),
    slow
  )
})
