import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { storeOperation } from "../support/database.ts"
import { until } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

const tray = (page: Page) => page.getByRole("button", { name: /^Operations: / })
const panel = (page: Page) => page.getByRole("region", { name: "Operations" })
const cancel = (page: Page) => panel(page).getByRole("button", { name: /^Cancel: Change files of / })

/** Opens the tray with the keyboard. */
const open = Effect.fnUntraced(function* (page: Page) {
  yield* step(() => tray(page).focus())
  yield* step(() => page.keyboard.press("Enter"))
  yield* step(() => panel(page).waitFor())
})

describe.runIf(chromium !== undefined)(`dashboard: operations${chromiumNote}`, () => {
  const service = Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27700-27799" })
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "spec 11.1: each page has the operations of the key, and cancels one by keyboard, on a phone, too",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const launched = yield* browser
          const server = yield* installed(api, "kept", { name: "lobby" })
          for (const look of [{}, { dark: true, width: 360 }]) {
            const id = yield* storeOperation(api, server)
            const opened = yield* openPage(launched, api, "/dashboard/nodes", look)
            const { page } = opened
            yield* step(() => page.getByRole("button", { name: "Operations: 1 unfinished" }).waitFor())
            yield* open(page)
            yield* step(() => panel(page).getByRole("link", { name: "lobby" }).first().waitFor())
            assert.deepStrictEqual(yield* violationsOf(page), [])
            const isWithin = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
            assert.isTrue(
              yield* step(() => page.evaluate<boolean>(isWithin)),
              "the page has the width of the window"
            )
            yield* step(() => cancel(page).focus())
            yield* step(() => page.keyboard.press("Enter"))
            yield* step(() => panel(page).getByText("a caller has cancelled it").first().waitFor())
            yield* step(() => page.getByRole("button", { name: "Operations: none runs" }).waitFor())
            const { json } = yield* expectStatus(api, 200, "GET", `/api/operations/${id}`)
            assert.strictEqual(json.state, "cancelled")
            assert.deepStrictEqual(yield* violationsOf(page), [])
            yield* step(() => tray(page).focus())
            yield* step(() => page.keyboard.press("Escape"))
            yield* step(() => panel(page).waitFor({ state: "detached" }))
            yield* until(
              "the button has the focus",
              step(() => page.evaluate<boolean>(`document.activeElement.title === "Operations"`))
            )
            yield* assertClean(opened)
          }
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 11.6: operations of other callers appear by themselves; a pack is begun and told about here",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept")
          const files = `/api/servers/${server}/files`
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${server}#files`)
          const { page } = opened
          yield* step(() => page.getByRole("checkbox", { name: "Select server.sh", exact: true }).check())
          const copies = Array.from({ length: 1_001 }, (_, n) => ({ from: "/server.sh", to: `/many/f${n}` }))
          yield* expectStatus(api, 202, "POST", `${files}/copy`, { body: { copies } })
          yield* open(page)
          yield* step(() => panel(page).getByText("1,001 of 1,001 files").waitFor())
          yield* step(() => page.keyboard.press("Escape"))
          yield* step(() => page.getByRole("button", { name: "Pack…" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByLabel("Archive", { exact: true }).fill("packed.rar"))
          yield* step(() => dialog.getByLabel("Archive", { exact: true }).fill("packed.tar.gz"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.keyboard.press("Enter"))
          yield* shows(page, "Packed: packed.tar.gz")
          yield* step(() => page.getByRole("link", { name: "packed.tar.gz", exact: true }).waitFor())
          yield* open(page)
          yield* step(() => panel(page).getByText("Pack files").waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 11.3: a key with browse alone cancels nothing; a key without it has no tray",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const launched = yield* browser
          yield* storeOperation(api, yield* installed(api, "kept"))
          const { key: browsing } = yield* keyed("ReadOnly", { allow: ["read", "browse"] })
          const { page } = yield* openPage(launched, api, "/dashboard/nodes", { key: browsing })
          yield* open(page)
          yield* step(() => panel(page).getByText("Change files").first().waitFor())
          assert.strictEqual(yield* step(() => cancel(page).count()), 0)
          assert.deepStrictEqual(yield* violationsOf(page), [])
          const { key: reading } = yield* keyed("ReadOnly")
          const { page: other } = yield* openPage(launched, api, "/dashboard/nodes", { key: reading })
          yield* step(() => other.getByRole("button", { name: /^Key / }).waitFor())
          yield* step(() => other.getByText("ReadOnly").waitFor())
          assert.strictEqual(yield* step(() => tray(other).count()), 0)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
