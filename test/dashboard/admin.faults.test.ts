import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Locator } from "playwright-core"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { receiver } from "../controlPlane/webhooks/receiver.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { until } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { requestTo } from "../support/Service.ts"
import { expectStatus, installed, running } from "../support/servers.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

const service = Muster.layer(games, {
  MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27500-27599",
  MUSTER_WEBHOOK_ALLOW_PRIVATE: "true"
})

/** Reads the secret that the page shows once, and takes it off the page. */
const takeSecret = Effect.fnUntraced(function* (shown: Locator) {
  const secret = (yield* step(() => shown.locator("code").textContent())) ?? ""
  yield* step(() => shown.getByRole("button", { name: "Copy the secret" }).click())
  yield* step(() => shown.locator(".is-copied").waitFor())
  yield* step(() => shown.getByRole("button", { name: "I have saved it" }).click())
  yield* step(() => shown.waitFor({ state: "detached" }))
  return secret
})

describe.runIf(chromium !== undefined)(`dashboard: administration${chromiumNote}`, () => {
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "a key is created with rights and limits, shown once, listed, and revoked",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          yield* step(() => page.locator("#search").waitFor())
          yield* step(() => page.keyboard.press("g"))
          yield* step(() => page.keyboard.press("k"))
          yield* step(() => page.getByRole("button", { name: "New key" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => page.goBack())
          yield* step(() => dialog.waitFor({ state: "detached" }))
          yield* step(() => page.goForward())
          yield* step(() => page.getByRole("button", { name: "New key" }).click())
          yield* step(() => dialog.getByLabel("Name").fill("team-a"))
          yield* step(() => dialog.getByLabel("Send commands").uncheck())
          yield* step(() => dialog.getByLabel("Create servers").check())
          yield* step(() => dialog.getByLabel("Blueprints").fill("kept"))
          yield* step(() => dialog.getByLabel("Labels").fill("team=a"))
          yield* step(() => dialog.getByLabel("Most servers").fill("3"))
          yield* step(() => dialog.getByLabel("Valid for, days").fill("30"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.keyboard.press("Enter"))
          const shown = page.getByRole("region", { name: "The key team-a" })
          yield* step(() => shown.waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          const key = yield* takeSecret(shown)
          assert.notInclude(yield* step(() => page.content()), key)
          const team = { request: requestTo(api.url, key) }
          const { json } = yield* expectStatus(team, 200, "GET", "/api/keys/self")
          const { id, ...self } = json
          assert.deepStrictEqual(self, {
            name: "team-a",
            scope: "Operator",
            rights: ["read", "power", "console", "change", "create"],
            blueprints: ["kept"],
            labels: { team: "a" },
            max_servers: 3,
            used: { servers: 0, memory: 0, cpu: 0, disk: 0 }
          })
          const row = page.getByRole("row", { name: /team-a/ })
          yield* step(() => row.getByText("at most 3 servers").waitFor())
          yield* step(() => row.getByRole("button", { name: "Revoke…" }).click())
          yield* step(() => dialog.getByRole("button", { name: "Revoke team-a" }).click())
          yield* step(() => row.waitFor({ state: "detached" }))
          assert.strictEqual((yield* team.request("GET", "/api/keys/self")).status, 401)
          yield* step(() => page.getByLabel(/^Show \d+ revoked or expired$/).check())
          yield* step(() =>
            page
              .getByRole("row", { name: new RegExp(id) })
              .getByText("revoked")
              .waitFor()
          )
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a webhook is created, tested, changed, replayed and deleted; its failed deliveries are shown",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const target = yield* receiver
          const opened = yield* openPage(yield* browser, api, "/dashboard/webhooks", { dark: true })
          const { page } = opened
          yield* step(() => page.getByRole("button", { name: "New webhook" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByLabel("Address").fill(`${target.url}/hook`))
          yield* step(() => dialog.getByLabel("Installations").check())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Create the webhook" }).click())
          const secret = yield* takeSecret(page.getByRole("region", { name: /^The secret of/ }))
          assert.match(secret, /^whsec_/)
          const card = page.getByRole("article")
          yield* step(() => card.getByRole("button", { name: "Send a test" }).click())
          yield* shows(page, /has accepted the test/)
          assert.strictEqual(target.received().length, 1)

          yield* target.respond(() => 500)
          yield* installed(api, "kept")
          yield* step(() => card.getByText(/^Fails since .*500$/).waitFor())
          yield* step(() => card.getByRole("button", { name: "Show the deliveries" }).click())
          yield* step(() => card.getByRole("button", { name: /^Failed/ }).click())
          yield* step(() => card.locator(".event").getByText("status 500").first().waitFor())
          assert.strictEqual(yield* step(() => card.locator(".event").getByText("test").count()), 0)

          yield* target.respond(() => 204)
          const menu = card.getByRole("button", { name: /^Actions on/ })
          yield* step(() => menu.click())
          yield* step(() => page.getByRole("menuitem", { name: "Replay…" }).click())
          yield* step(() => dialog.getByLabel("Events after").fill("0"))
          yield* step(() => dialog.getByRole("button", { name: "Replay" }).click())
          yield* step(() => card.locator(".status").getByText("active").waitFor())

          yield* step(() => menu.click())
          yield* step(() => page.getByRole("menuitem", { name: "Change…" }).click())
          yield* step(() => dialog.getByLabel("Description").fill("For the chat"))
          yield* step(() => dialog.getByRole("button", { name: "Save" }).click())
          yield* step(() => card.getByRole("heading", { name: "For the chat" }).waitFor())
          yield* step(() => menu.click())
          yield* step(() => page.getByRole("menuitem", { name: "Delete…" }).click())
          yield* step(() => dialog.getByRole("button", { name: /^Delete/ }).click())
          yield* shows(page, "No webhook yet")
          assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/webhooks")).json, [])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "settings are searched, and show no secret",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard/settings")
          const { page } = opened
          const row = (name: string) => page.getByRole("row", { name: new RegExp(`^${name} `) })
          yield* step(() => row("MUSTER_WEBHOOK_ALLOW_PRIVATE").getByText("environment").waitFor())
          yield* step(() => row("APP_ADMIN_API_KEY").getByText("set, not shown").waitFor())
          assert.notInclude(yield* step(() => page.locator("main").textContent()), api.key)
          yield* step(() => page.getByRole("button", { name: /^Changed/ }).click())
          yield* step(() => row("MUSTER_AUDIT_KEEP").waitFor({ state: "detached" }))
          yield* step(() => page.getByLabel("Search settings").fill("allow private"))
          yield* step(() => row("APP_ADMIN_API_KEY").waitFor({ state: "detached" }))
          yield* step(() => row("MUSTER_WEBHOOK_ALLOW_PRIVATE").waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "other keys see why they have no administration",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const { key } = yield* keyed("Operator")
          const opened = yield* openPage(yield* browser, api, "/dashboard/keys", { key })
          const { page } = opened
          for (const part of ["Keys", "Webhooks", "Settings"]) {
            yield* step(() => page.getByRole("link", { name: part }).click())
            yield* step(() => page.getByText("The key “test” has the scope Operator.").waitFor())
            assert.strictEqual(yield* step(() => page.getByRole("button", { name: /^New/ }).count()), 0)
          }
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a drain shows which servers would stay, and why, before anything changes",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* running(api, "kept")
          const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes?ids_only=true")).json
          const isDrained = Effect.map(
            expectStatus(api, 200, "GET", `/api/nodes/${node}`),
            ({ json }) => json.drained
          )
          const { json: plan } = yield* expectStatus(
            api,
            200,
            "PATCH",
            `/api/nodes/${node}/drained?dry_run=true`,
            { body: { drained: true, move: true } }
          )
          const opened = yield* openPage(yield* browser, api, "/dashboard/nodes")
          const { page } = opened
          const menu = page.getByRole("button", { name: /^Actions on/ })
          yield* step(() => menu.click())
          yield* step(() => page.getByRole("menuitem", { name: "Drain…" }).click())
          const dialog = page.getByRole("dialog")
          for (const { reason, total } of plan.blocked)
            yield* step(() =>
              dialog.getByText(`${total} server${total === 1 ? "" : "s"} would stay: ${reason}`).waitFor()
            )
          assert.isNotEmpty(plan.blocked)
          assert.isFalse(yield* isDrained)
          yield* step(() => dialog.getByRole("button", { name: "Drain", exact: true }).click())
          yield* step(() => page.getByRole("article").getByText("drained").waitFor())
          assert.isTrue(yield* isDrained)
          yield* step(() => menu.click())
          yield* step(() => page.getByRole("menuitem", { name: "End the drain" }).click())
          yield* step(() => page.getByRole("article").getByText("connected", { exact: true }).waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a drain with a move sends the line for the consoles and its time",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard/nodes")
          const { page } = opened
          const plan = { migrations: [], migrations_total: 2, blocked: [], running_out: 0 }
          yield* step(() => page.route("**/drained?dry_run=true", (route) => route.fulfill({ json: plan })))
          const sent: Array<unknown> = []
          yield* step(() =>
            page.route("**/drained", (route) => {
              sent.push(route.request().postDataJSON())
              return route.fulfill({ json: {} })
            })
          )
          yield* step(() => page.getByRole("button", { name: /^Actions on/ }).click())
          yield* step(() => page.getByRole("menuitem", { name: "Drain…" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByText("2 saved servers would move").waitFor())
          yield* step(() => dialog.getByLabel("Line before a move").fill("say Moving"))
          yield* step(() => dialog.getByLabel("Seconds after the line").fill("5"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Drain and move" }).click())
          yield* shows(page, /is drained/)
          assert.deepStrictEqual(sent, [
            { drained: true, move: true, notify: "say Moving", notify_seconds: 5 }
          ])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a quota is created, changed and deleted; a limit that is no number is refused with the reason",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard/quotas", { width: 390 })
          const { page } = opened
          const stored = Effect.map(expectStatus(api, 200, "GET", "/api/quotas"), ({ json }) =>
            json.map(({ created_at: _, used: __, ...limits }: Record<string, unknown>) => limits)
          )
          yield* step(() => page.getByRole("button", { name: "New quota" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByLabel("Name").fill("team-a"))
          yield* step(() => dialog.getByLabel("Most servers").fill("three"))
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() =>
            dialog
              .getByRole("alert")
              .getByText(/max_servers/)
              .waitFor()
          )
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByLabel("Most servers").fill("3"))
          yield* step(() => page.keyboard.press("Enter"))
          const row = page.getByRole("row", { name: /team-a/ })
          yield* step(() => row.getByText("0 of 3").waitFor())
          assert.deepStrictEqual(yield* stored, [{ name: "team-a", max_servers: 3 }])

          yield* step(() => row.getByRole("button", { name: "Change…" }).click())
          yield* step(() => dialog.getByLabel("Most servers").fill(""))
          yield* step(() => dialog.getByLabel("Most memory, MiB").fill("1024"))
          yield* step(() => dialog.getByRole("button", { name: "Save" }).click())
          yield* step(() => row.getByText("0 of 1024").waitFor())
          assert.deepStrictEqual(yield* stored, [{ name: "team-a", max_memory: 1024 }])

          yield* step(() => row.getByRole("button", { name: "Delete…" }).click())
          yield* step(() => dialog.getByRole("button", { name: "Delete team-a" }).click())
          yield* shows(page, "No quota yet")
          assert.deepStrictEqual(yield* stored, [])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect.each([{ width: 1300 }, { width: 390 }])(
      "messages cover no row, no action and no link to a page ($width px)",
      ({ width }) =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          const opened = yield* openPage(yield* browser, api, "/dashboard", { width })
          const { page } = opened
          yield* step(() => page.getByRole("checkbox", { name: `Select ${id}` }).click())
          yield* step(() => page.getByRole("toolbar").getByRole("button", { name: "Restart" }).click())
          yield* step(() => page.locator(".notice").waitFor())
          const overlaps = step(() =>
            page.evaluate<ReadonlyArray<string>>(`(() => {
              const box = (element) => element.getBoundingClientRect()
              const notice = box(document.querySelector(".notice"))
              return ["#servers", ".bulk", ".top nav"].filter((selector) => {
                const other = box(document.querySelector(selector))
                return other.bottom > notice.top + 1 && other.top < notice.bottom - 1 && other.right > notice.left && other.left < notice.right
              })
            })()`)
          )
          yield* until(
            "the message covers nothing",
            Effect.map(overlaps, ({ length }) => length === 0)
          )
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a part of the page that fails to load is named, and there after a reload",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept")
          const { page } = yield* openPage(yield* browser, api, "/dashboard")
          yield* step(() => page.route("**/assets/xterm.js", (route) => route.abort()))
          yield* step(() => page.locator(`#row-${id} .server-link`).click())
          yield* shows(page, "The console could not be loaded")
          yield* step(() => page.unroute("**/assets/xterm.js"))
          yield* step(() => page.reload())
          yield* step(() => page.locator(".xterm-rows").getByText("ready").waitFor())
        }).pipe(Effect.scoped),
      slow
    )
  })
})
