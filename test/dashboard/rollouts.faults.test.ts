import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { chromium, chromiumNote } from "../support/browser.ts"
import { Muster } from "../support/Muster.ts"
import { fleetFiles, publish } from "../support/rollouts.ts"
import { create, expectStatus, running } from "../support/servers.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"

const service = Muster.layer(fleetFiles, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27400-27499" })

const versionOf = (id: string) =>
  Effect.gen(function* () {
    const { json } = yield* expectStatus(yield* Muster, 200, "GET", `/api/servers/${id}?include=software`)
    return json.version
  })

describe.runIf(chromium !== undefined)(`dashboard: rollouts${chromiumNote}`, () => {
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "selected servers get today's definition after its difference was shown; a canary is resumed",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* publish(api, "one")
          const ids = [yield* running(api, "fleet"), yield* running(api, "fleet")]
          const other = yield* running(api, "fleet")
          yield* publish(api, "two")
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          for (const id of ids)
            yield* step(() => page.getByRole("checkbox", { name: `Select ${id}` }).click())
          yield* step(() => page.getByRole("toolbar").getByRole("button", { name: "Roll out…" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByText("2 servers of 2 would change").waitFor())
          const changes = yield* step(() => dialog.locator("tbody tr").allInnerTexts())
          assert.deepStrictEqual(
            changes.map((row) => row.split(/\s+/).slice(0, 3)),
            [
              ["env.VERSION", "one", "two"],
              ["version", "one", "two"]
            ]
          )
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByLabel("At a time").fill("1"))
          yield* step(() => dialog.getByLabel("Canary").fill("one"))
          yield* step(() => dialog.getByRole("button", { name: "Change 2 servers" }).click())
          yield* step(() =>
            dialog
              .getByRole("alert")
              .getByText(/body field canary/)
              .waitFor()
          )
          yield* step(() => dialog.getByLabel("Canary").fill("1"))
          yield* step(() => dialog.getByRole("button", { name: "Change 2 servers" }).click())
          const rollout = page.getByRole("article").first()
          yield* step(() => rollout.getByText("1 done").waitFor())
          yield* step(() => rollout.getByText("1 left").waitFor())
          assert.sameMembers(yield* Effect.forEach(ids, versionOf), ["one", "two"])
          yield* step(() => rollout.getByRole("button", { name: "Resume" }).click())
          yield* step(() => rollout.getByText("2 done").waitFor())
          assert.deepStrictEqual(yield* Effect.forEach(ids, versionOf), ["two", "two"])
          assert.strictEqual(yield* versionOf(other), "one")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a blueprint is rolled out with the keyboard; after a failure its servers are rolled back",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* publish(api, "three")
          const good = yield* running(api, "passing")
          const bad = yield* create(api, "passing", {
            start: true,
            overrides: { env: { BROKEN: "four" } }
          })
          yield* expectStatus(api, 200, "GET", `/api/servers/${bad}?wait=running&timeout=60`)
          yield* publish(api, "four")
          const opened = yield* openPage(yield* browser, api, "/dashboard", { dark: true })
          const { page } = opened
          yield* step(() => page.locator(`#row-${bad}`).waitFor())
          yield* step(() => page.keyboard.press("G"))
          yield* step(() => page.keyboard.press("R"))
          yield* step(() => page.getByRole("button", { name: "New rollout" }).focus())
          yield* step(() => page.keyboard.press("Enter"))
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByLabel("Blueprint").focus())
          yield* step(() => dialog.getByRole("option", { name: "passing" }).waitFor({ state: "attached" }))
          yield* step(() => page.keyboard.type("passing"))
          yield* step(() => dialog.getByText("2 servers of 2 would change").waitFor())
          yield* step(() => dialog.getByLabel("After a failure").focus())
          yield* step(() => page.keyboard.type("Roll"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Change 2 servers" }).focus())
          yield* step(() => page.keyboard.press("Enter"))
          const rollout = page.getByRole("article").first()
          yield* step(() => rollout.locator(".status").getByText("rolled back", { exact: true }).waitFor())
          assert.strictEqual(yield* versionOf(good), "three")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a rollout is paused and aborted; the abort is confirmed",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          // The server stays under way: its installation does not end.
          const id = yield* create(api, "endless")
          yield* publish(api, "five")
          yield* expectStatus(api, 201, "POST", "/api/rollouts", { body: { selector: { ids: [id] } } })
          const opened = yield* openPage(yield* browser, api, "/dashboard/rollouts")
          const { page } = opened
          const rollout = page.getByRole("article").first()
          yield* step(() => rollout.getByRole("button", { name: "Pause" }).click())
          yield* step(() => rollout.locator(".status").getByText("paused").waitFor())
          yield* step(() => rollout.getByRole("button", { name: "Abort…" }).click())
          yield* step(() => page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click())
          yield* step(() => rollout.getByRole("button", { name: "Abort…" }).click())
          yield* step(() => page.getByRole("dialog").getByRole("button", { name: "Abort" }).click())
          yield* step(() => rollout.locator(".status").getByText("aborted").waitFor())
          yield* shows(page, "1 not changed")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
