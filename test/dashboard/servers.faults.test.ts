import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { commands, create, expectStatus, installed, power, running, statusOf } from "../support/servers.ts"
import { assertClean, browser, openPage, shows, slow, status, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

const service = Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26900-26999" })

describe.runIf(chromium !== undefined)(`dashboard: servers${chromiumNote}`, () => {
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "a key is asked for, kept in the session of the tab alone, and forgotten on sign-out",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard", { key: null })
          const { page } = opened
          yield* step(() => page.getByLabel("API key").fill("wrong"))
          yield* step(() => page.getByRole("button", { name: "Sign in" }).click())
          yield* shows(page, "The service does not know this key.")
          yield* step(() => page.getByLabel("API key").fill(api.key))
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() => page.getByRole("button", { name: /^Connection: Live/ }).waitFor())
          const places = yield* step(() =>
            page.evaluate(`[location.href, document.cookie, JSON.stringify(localStorage)].join(" ")`)
          )
          assert.notInclude(String(places), api.key)
          yield* step(() => page.getByRole("button", { name: /^Key/ }).click())
          yield* step(() => page.getByRole("menuitem", { name: "Sign out" }).click())
          yield* step(() => page.getByLabel("API key").waitFor())
          assert.strictEqual(yield* step(() => page.evaluate("sessionStorage.length")), 0)
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "the list follows creations, changes of status and deletions, and is used with the keyboard",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          const id = yield* create(api, "kept", { name: "first-of-list", start: true })
          yield* status(page, id, "running")
          const other = yield* installed(api, "kept")
          yield* status(page, other, "offline")
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${other}`, {
            body: { labels: { by: "others" } }
          })
          yield* step(() => page.evaluate(`document.dispatchEvent(new Event("visibilitychange"))`))
          yield* step(() => page.locator(`#row-${other}`).getByText("by=others").waitFor())
          // The name of a column stands above its cells.
          const leftOf = (place: string) =>
            Effect.map(
              step(() => page.locator(place).boundingBox()),
              (box) => box?.x
            )
          for (const column of ["status", "memory"]) {
            const cell = yield* leftOf(`#row-${id} .cell-${column}`)
            assert.strictEqual(yield* leftOf(`.row-head .cell-${column}`), cell, column)
          }
          yield* step(() => page.keyboard.press("/"))
          yield* step(() => page.keyboard.type("first-of"))
          yield* step(() => page.locator(`#row-${other}`).waitFor({ state: "detached" }))
          yield* step(() => page.waitForURL(/[?&]q=first-of$/))
          yield* step(() => page.keyboard.press("ArrowDown"))
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() => page.getByRole("heading", { name: "first-of-list" }).waitFor())
          yield* step(() => page.keyboard.press("Escape"))
          yield* step(() => page.locator(`#row-${id}`).waitFor())
          yield* step(() => page.waitForURL(/[?&]q=first-of$/))
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          yield* shows(page, "No server matches")
          // A deleted server has its crashes and its requests left.
          yield* step(() => page.goto(`${api.url}/dashboard/servers/${id}`))
          yield* shows(page, "This server does not exist")
          yield* shows(page, "server.delete")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "selected servers are stopped and deleted together; the confirmation names them",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const ids = [yield* running(api, "kept"), yield* running(api, "kept")]
          const kept = yield* installed(api, "kept")
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          for (const id of ids)
            yield* step(() => page.getByRole("checkbox", { name: `Select ${id}` }).click())
          yield* shows(page, "2 servers selected")
          yield* step(() => page.getByRole("toolbar").getByRole("button", { name: "Stop" }).click())
          for (const id of ids) yield* status(page, id, "offline")
          yield* step(() => page.getByRole("toolbar").getByRole("button", { name: "Delete" }).click())
          const dialog = page.getByRole("dialog")
          for (const id of ids) yield* step(() => dialog.getByText(id).first().waitFor())
          assert.strictEqual(yield* step(() => dialog.getByText(kept).count()), 0)
          yield* step(() => dialog.getByRole("button", { name: "Delete 2 servers" }).click({ force: true }))
          assert.strictEqual(yield* statusOf(api, ids[0] ?? ""), "offline")
          yield* step(() => dialog.getByRole("textbox").fill("2"))
          yield* step(() => dialog.getByRole("button", { name: "Delete 2 servers" }).click())
          for (const id of ids) yield* eventually(statusOf(api, id), (is) => is === "gone")
          for (const id of ids) yield* step(() => page.locator(`#row-${id}`).waitFor({ state: "detached" }))
          assert.strictEqual(yield* statusOf(api, kept), "offline")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a server is created by a form that shows the node and the definition before",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard/new")
          const { page } = opened
          yield* step(() => page.locator("form").getByText("Choose a blueprint first.").waitFor())
          yield* step(() => page.getByRole("radio", { name: /kept/ }).check())
          yield* step(() => page.getByText("Choose a blueprint first.").waitFor({ state: "detached" }))
          const plan = page.getByRole("complementary")
          yield* step(() => plan.getByText("chosen").waitFor())
          yield* step(() => page.getByLabel("Memory, MiB").fill("99999999999"))
          yield* step(() => plan.getByText(/memory_limit/).waitFor())
          yield* step(() => page.getByLabel("Memory, MiB").fill("9o"))
          yield* shows(page, "Enter a number, such as 512.")
          const submit = page.getByRole("button", { name: "Create the server" })
          yield* step(() => page.getByLabel("Memory, MiB").fill("60000000"))
          yield* step(() =>
            page
              .locator("form")
              .getByText(/^No node fits: /)
              .waitFor()
          )
          assert.strictEqual(yield* step(() => submit.getAttribute("aria-disabled")), "true")
          yield* step(() => page.getByLabel("Memory, MiB").fill("96"))
          yield* step(() => plan.getByText("96.0 MiB").waitFor())
          yield* step(() => page.getByLabel("Disk, MB").fill("321"))
          yield* step(() => plan.getByText("321 MB").waitFor())
          yield* step(() => page.getByLabel("Name", { exact: true }).fill("by-form"))
          yield* step(() => page.getByText("More settings").click())
          yield* step(() => page.getByLabel("Labels").fill("team=blue"))
          yield* step(() => submit.click())
          yield* step(() => page.getByRole("heading", { name: "by-form" }).waitFor())
          yield* step(() => page.locator(".server-head .status.is-running").waitFor())
          // The installation is shown until it has ended.
          yield* step(() => page.locator(".xterm-rows").getByText("ready").waitFor())
          yield* step(() => page.getByRole("link", { name: "Installation" }).click())
          yield* shows(page, "Make the files of the server")
          const { json } = yield* expectStatus(
            api,
            200,
            "GET",
            "/api/servers?q=by-form&include=labels,limits"
          )
          assert.deepStrictEqual(json[0].labels, { team: "blue" })
          assert.strictEqual(json[0].limits.memory_limit, 96)
          assert.strictEqual(json[0].limits.disk_space, 321)
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a server that cannot be started needs a look; its page has the reason and the next step",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard?status=failed")
          const { page } = opened
          const id = yield* create(api, "absent", { start: true })
          const row = page.locator(`#row-${id}`)
          const reason = /^It cannot be started: the program no-such-program is not in PATH/
          yield* step(() => row.getByRole("img", { name: reason }).waitFor())
          yield* step(() => row.getByRole("link").click())
          yield* step(() =>
            page.getByText(/upgrade the server: Upgrade, in the menu of the server/).waitFor()
          )
          yield* step(() => page.goto(`${api.url}/dashboard?status=failed`))
          yield* step(() => row.getByRole("img", { name: reason }).waitFor())
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a server that is not saved is marked; a stop asks first, and the page then says why it is gone",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept", { name: "square", overrides: { save: false } })
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          yield* step(() => page.setViewportSize({ width: 1280, height: 900 }))
          yield* step(() => page.locator(`#row-${id}`).getByText("not saved").waitFor())
          // The mark stays when the page reads the settings again, as it does once it is visible.
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { name: "round" } })
          yield* step(() => page.evaluate(`document.dispatchEvent(new Event("visibilitychange"))`))
          yield* step(() => page.locator(`#row-${id}`).getByRole("link", { name: "round" }).waitFor())
          assert.strictEqual(yield* step(() => page.locator(`#row-${id}`).getByText("not saved").count()), 1)
          const cut = `[...document.querySelectorAll("#row-${id} .cell-status, #row-${id} .cell-address")].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.className)`
          assert.deepStrictEqual(yield* step(() => page.evaluate(cut)), [], "status and address have room")
          yield* step(() => page.getByRole("link", { name: "round" }).click())
          yield* step(() => page.locator(".server-head").getByText("not saved").waitFor())
          yield* step(() => page.locator(".xterm-rows").getByText("ready").waitFor())
          // Nothing covers the line above the input of the console.
          const covered = yield* step(() =>
            page.evaluate(`(() => {
              const form = document.querySelector(".console-input")
              const { left, top, width } = form.getBoundingClientRect()
              return document.elementFromPoint(left + width / 2, top + 0.5) !== form
            })()`)
          )
          assert.strictEqual(covered, false)
          const screenshot = process.env.MUSTER_TEST_SCREENSHOT
          if (screenshot !== undefined) yield* step(() => page.screenshot({ path: screenshot }))
          yield* step(() => page.getByRole("button", { name: "Stop" }).click())
          yield* shows(page, "round is not saved. Once stopped, such a server is deleted with its files.")
          yield* step(() => page.getByRole("button", { name: "Cancel" }).click())
          assert.strictEqual(yield* statusOf(api, id), "running")
          yield* step(() => page.getByRole("button", { name: "Stop" }).click())
          yield* step(() => page.getByRole("button", { name: "Stop and delete" }).click())
          yield* step(() => page.getByText(/was deleted at .*: it is not saved, and was stopped/).waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "the console shows stored and new lines, sends commands, and has a history",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          yield* commands(api, id, "before one")
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${id}`)
          const { page } = opened
          const output = page.locator(".xterm-rows")
          yield* step(() => output.getByText("got before one").waitFor())
          const line = page.getByLabel("Command")
          yield* step(() => line.fill("hello you"))
          yield* step(() => line.press("Enter"))
          yield* step(() => output.getByText("got hello you").waitFor())
          assert.strictEqual(yield* step(() => line.inputValue()), "")
          yield* step(() => line.press("ArrowUp"))
          assert.strictEqual(yield* step(() => line.inputValue()), "hello you")
          yield* step(() => page.getByRole("img", { name: /^CPU/ }).waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "changes are saved only after their difference was shown",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${id}#changes`)
          const { page } = opened
          yield* step(() => page.getByLabel("Memory, MiB").fill("80"))
          yield* step(() => page.getByLabel("Labels").fill("team=red"))
          const configs = page.getByLabel("Config patches")
          yield* step(() => configs.fill("motd=Hi"))
          yield* shows(page, /^Enter JSON such as/)
          yield* step(() =>
            configs.fill(`{"server.properties": {"find": {"motd": "Hi"}, "parser": "properties"}}`)
          )
          yield* step(() => page.getByRole("button", { name: "Review 4 changes" }).click())
          const changes = page.getByRole("dialog").locator("tbody tr")
          yield* step(() => changes.nth(3).waitFor())
          const rows = yield* step(() => changes.allInnerTexts())
          assert.deepStrictEqual(
            rows.map((row) => row.split(/\s+/)),
            [
              ["overrides.limits.memory_limit", "64", "80"],
              ["labels.team", "—", "red"],
              ["overrides.configs.server.properties.find.motd", "—", "Hi"],
              ["overrides.configs.server.properties.parser", "—", "properties"]
            ]
          )
          yield* step(() => page.getByRole("button", { name: "Save 4 changes" }).click())
          yield* shows(page, "The next start changes")
          const { json } = yield* expectStatus(
            api,
            200,
            "GET",
            `/api/servers/${id}?include=labels,limits,definition`
          )
          assert.deepStrictEqual(json.labels, { team: "red" })
          assert.deepStrictEqual(json.overrides.configs, {
            "server.properties": { find: { motd: "Hi" }, parser: "properties" }
          })
          assert.include(json.pending, "limits.memory_limit")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "power buttons fit the state; a crash is shown with its last lines",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept")
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${id}`)
          const { page } = opened
          const buttons = page.locator(".power > button")
          yield* step(() => buttons.getByText("Start").waitFor())
          assert.deepStrictEqual(yield* step(() => buttons.allInnerTexts()), ["Start"])
          yield* step(() => buttons.getByText("Start").click())
          yield* step(() => buttons.getByText("Restart").waitFor())
          assert.deepStrictEqual(yield* step(() => buttons.allInnerTexts()), ["Restart", "Stop"])
          yield* commands(api, id, "exit 3")
          yield* step(() => page.getByRole("link", { name: "Show its last lines" }).click())
          yield* step(() => page.locator(".crash .lines").getByText("ready").waitFor())
          yield* step(() => page.locator(".crash").getByText("exit code 3", { exact: true }).waitFor())
          yield* power(api, id, "start")
          yield* step(() => page.locator(".server-head .status.is-running").waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 3.19: a list whose only server is deleted leads to its undelete",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const labels = { team: "alone" }
          const owner = yield* keyed("Operator", { labels, allow: ["create", "delete", "power"] })
          const id = yield* running(api, "kept", { name: "only", labels })
          const { key } = owner
          const opened = yield* openPage(yield* browser, api, "/dashboard", { key, width: 390 })
          const { page } = opened
          yield* status(page, id, "running")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?force=true`)
          yield* shows(page, "No server yet")
          yield* shows(page, "1 deleted server can be undeleted")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.goto(`${api.url}/dashboard/servers/${id}`))
          yield* step(() => page.getByRole("link", { name: "1 deleted server can be undeleted" }).click())
          yield* step(() => page.getByRole("button", { name: "Undelete" }).click())
          yield* step(() => page.getByRole("heading", { name: "only" }).waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a note counts the deleted servers of the first page, and says that there are more",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const reader = yield* keyed("Operator", { labels: { team: "none" } })
          const opened = yield* openPage(yield* browser, api, "/dashboard/nodes", { key: reader.key })
          const { page } = opened
          // A test deletes no thousand servers.
          yield* step(() =>
            page.route(/\/api\/servers\?deleted=true/, (route) =>
              route.fulfill({
                json: Array.from({ length: 1000 }, (_, at) => `id${at}`),
                headers: { link: '</api/servers?deleted=true&after=id999>; rel="next"' }
              })
            )
          )
          yield* step(() => page.goto(`${api.url}/dashboard`))
          yield* shows(page, "More than 1,000 deleted servers can be undeleted")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a key without rights sees why it cannot act",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          yield* commands(api, id, "for readers")
          const reader = yield* keyed("ReadOnly")
          const opened = yield* openPage(yield* browser, api, "/dashboard", { key: reader.key })
          const { page } = opened
          yield* status(page, id, "running")
          yield* step(() => page.getByTitle("The key “test” lacks the right create.").waitFor())
          yield* step(() => page.locator(`#row-${id} .server-link`).click())
          yield* step(() => page.locator(".xterm-rows").getByText("got for readers").waitFor())
          yield* shows(page, /lacks the right console/)
          assert.isFalse(yield* step(() => page.getByLabel("Command").isEditable()))
          const stop = page.getByRole("button", { name: "Stop" })
          assert.strictEqual(yield* step(() => stop.getAttribute("aria-disabled")), "true")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })
})

describe.runIf(chromium !== undefined)(`dashboard: deleted servers${chromiumNote}`, () => {
  const twoPorts = Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26440-26441" })
  layer(twoPorts, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "spec 3.19: an undelete names the port that is taken, and the one in its place",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept", { name: "lobby" })
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?force=true`)
          const other = yield* installed(api, "kept")
          yield* installed(api, "kept")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${other}`)
          const opened = yield* openPage(yield* browser, api, "/dashboard/deleted")
          const { page } = opened
          yield* step(() => page.getByRole("button", { name: "Undelete" }).click())
          yield* shows(page, "Its port 127.0.0.1:26440 is taken: it has 127.0.0.1:26441 in its place.")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
