import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { chromium, chromiumNote } from "../support/browser.ts"
import { eventually, until } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { becomes, commands, create, expectStatus, installed, powered, running } from "../support/servers.ts"
import { assertClean, browser, openPage, slow, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

/** The pages, and a text that each shows once it is complete. */
const pagesOf = (id: string): ReadonlyArray<readonly [string, string]> => [
  ["/dashboard", id],
  ["/dashboard/nodes", "connected"],
  ["/dashboard/rollouts", "2 servers at a time"],
  ["/dashboard/schedules", "No schedule yet"],
  ["/dashboard/backups", "before the event"],
  ["/dashboard/deleted", "No deleted server"],
  ["/dashboard/keys", "at most 2 servers"],
  ["/dashboard/quotas", "0 of 5"],
  ["/dashboard/webhooks", "Fails since"],
  ["/dashboard/targets", "always there"],
  ["/dashboard/settings", "MUSTER_DATA_DIR"],
  ["/dashboard/events", "running"],
  ["/dashboard/events#crashes", "exit code 3"],
  ["/dashboard/events#audit", "server.create"],
  ["/dashboard/new", "Start it once it is installed"],
  [`/dashboard/servers/${id}`, "got hello there"],
  [`/dashboard/servers/${id}#files`, "server.sh"],
  [`/dashboard/servers/${id}#files/server.sh`, "Download"],
  [`/dashboard/servers/${id}#backups`, "before the event"],
  [`/dashboard/servers/${id}#changes`, "Environment variables"],
  [`/dashboard/servers/${id}#installation`, "Make the files of the server"],
  [`/dashboard/servers/${id}#crashes`, "exit code 3"],
  [`/dashboard/servers/${id}#events`, "running"],
  ["/", "Uptime"],
  ["/nodes", "connected"]
]

const looks = [
  ["light", 1300],
  ["light", 390],
  ["dark", 390],
  ["dark", 1300]
] as const

describe.runIf(chromium !== undefined)(`dashboard: pages${chromiumNote}`, () => {
  const service = Muster.layer(games, {
    MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27300-27399",
    MUSTER_WEBHOOK_ALLOW_PRIVATE: "true"
  })
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    const prepared = Effect.gen(function* () {
      const api = yield* Muster
      const id = yield* running(api, "kept")
      yield* commands(api, id, "exit 3")
      yield* becomes(api, id, "offline")
      yield* installed(api, "kept")
      yield* powered(api, id, "start")
      yield* becomes(api, id, "running")
      yield* commands(api, id, "hello there")
      yield* expectStatus(api, 201, "POST", "/api/rollouts", { body: { selector: { ids: [id] } } })
      yield* expectStatus(api, 201, "POST", "/api/keys", {
        body: { name: "team", scope: "Operator", labels: { team: "a" }, max_servers: 2, expires_in: 86_400 }
      })
      yield* expectStatus(api, 201, "POST", "/api/quotas", { body: { name: "team-a", max_servers: 5 } })
      const { json: webhook } = yield* expectStatus(api, 201, "POST", "/api/webhooks", {
        // No process listens there.
        body: { url: "http://127.0.0.1:27399/hook", topics: ["status"] }
      })
      yield* expectStatus(api, 202, "POST", `/api/servers/${id}/backups`, {
        body: { name: "before the event", pinned: true },
        headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
      })
      yield* powered(api, id, "restart")
      yield* eventually(
        expectStatus(api, 200, "GET", `/api/webhooks/${webhook.id}`),
        ({ json }) => json.state === "retrying"
      )
      yield* becomes(api, id, "running")
      return { api, id }
    })

    it.effect(
      "every page is complete, accessible, within the window and within the policy, in light and dark, wide and narrow",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          for (const [path, text] of pagesOf(id)) {
            yield* step(() => page.goto(`${api.url}${path}`))
            for (const [colorScheme, width] of looks) {
              const look = `${path}, ${colorScheme}, ${width} px`
              yield* step(() => page.emulateMedia({ colorScheme }))
              yield* step(() => page.setViewportSize({ width, height: 850 }))
              yield* step(() => page.getByText(text).filter({ visible: true }).first().waitFor())
              assert.strictEqual(yield* step(() => page.locator(".boot").count()), 0, look)
              // The terminal takes its colours with the next frame.
              yield* step(() =>
                page.evaluate(
                  "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
                )
              )
              assert.deepStrictEqual(yield* violationsOf(page), [], look)
              const isWithin = step(() =>
                page.evaluate<boolean>(
                  "document.documentElement.scrollWidth === document.documentElement.clientWidth"
                )
              )
              yield* until(`${look} is as wide as the window`, isWithin)
            }
          }
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "the sign-in form, dialogs and menus are accessible",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const launched = yield* browser
          const id = yield* create(api, "kept")
          for (const dark of [false, true]) {
            const { page: form } = yield* openPage(launched, api, "/dashboard", { key: null, dark })
            yield* step(() => form.getByLabel("API key").waitFor())
            assert.deepStrictEqual(yield* violationsOf(form), [])
            const { page } = yield* openPage(launched, api, `/dashboard/servers/${id}`, { dark })
            const menu = page.getByRole("button", { name: "More actions" })
            yield* step(() => menu.click())
            yield* step(() => page.getByRole("menuitem", { name: "Delete…" }).waitFor())
            assert.deepStrictEqual(yield* violationsOf(page), [])
            yield* step(() => page.keyboard.press("Escape"))
            yield* step(() => page.getByRole("menu").waitFor({ state: "detached" }))
            assert.strictEqual(
              yield* step(() => page.evaluate("document.activeElement.getAttribute('aria-label')")),
              "More actions"
            )
            yield* step(() => menu.click())
            yield* step(() => page.getByRole("menuitem", { name: "Delete…" }).click())
            yield* step(() => page.getByRole("dialog").getByText(id).first().waitFor())
            assert.deepStrictEqual(yield* violationsOf(page), [])
          }
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "the theme follows the system until the reader chooses one",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const opened = yield* openPage(yield* browser, api, "/dashboard", { dark: true })
          const { page } = opened
          const background = () =>
            step(() => page.evaluate("getComputedStyle(document.body).backgroundColor"))
          const dark = yield* background()
          yield* step(() => page.getByRole("button", { name: "Use the light theme" }).click())
          const light = yield* background()
          assert.notStrictEqual(light, dark)
          yield* step(() => page.reload())
          yield* step(() => page.getByRole("button", { name: "Use the dark theme" }).click())
          assert.strictEqual(yield* background(), dark)
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
