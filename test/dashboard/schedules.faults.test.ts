import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { service } from "../controlPlane/http/support/http.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { blueprintFile } from "../support/definitions.ts"
import { Muster } from "../support/Muster.ts"
import { expectStatus, installed, running } from "../support/servers.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"

describe.runIf(chromium !== undefined)(`dashboard: schedules${chromiumNote}`, () => {
  layer(service(), { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "a schedule is made with the keyboard after its next times were shown; it is run, changed, paused and deleted",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "kept", { name: "lobby", labels: { team: "ui" } })
          const opened = yield* openPage(yield* browser, api, "/dashboard")
          const { page } = opened
          yield* step(() => page.locator(`#row-${id} .server-link`).click())
          yield* step(() => page.getByRole("button", { name: "More actions" }).click())
          yield* step(() => page.getByRole("menuitem", { name: "Schedule…" }).click())
          const named = page.getByRole("dialog").getByLabel("Server", { exact: true })
          assert.strictEqual(yield* step(() => named.inputValue()), "lobby")
          yield* step(() => page.keyboard.press("Escape"))
          yield* step(() => page.keyboard.press("G"))
          yield* step(() => page.keyboard.press("C"))
          yield* shows(page, "No schedule yet")
          yield* step(() => page.getByRole("button", { name: "New schedule" }).focus())
          yield* step(() => page.keyboard.press("Enter"))
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByText("Enter a name first.").waitFor())
          const steps = dialog.getByLabel("Steps", { exact: true })
          assert.strictEqual(yield* step(() => steps.inputValue()), "")
          assert.strictEqual(yield* step(() => dialog.getByLabel("State of the servers").inputValue()), "")
          yield* step(() => dialog.getByLabel("Add a step").selectOption("backup"))
          yield* step(() => dialog.getByLabel("Add a step").selectOption({ label: "Restart" }))
          assert.strictEqual(yield* step(() => steps.inputValue()), "backup\npower=restart")
          yield* step(() => dialog.getByLabel("Blueprint").selectOption("kept"))
          yield* step(() => dialog.getByLabel("Name").fill("nightly"))
          yield* step(() => dialog.getByLabel("Times", { exact: true }).fill("0 0 4 * * *"))
          yield* step(() => dialog.getByLabel("Time zone").fill("Asia/Kathmandu"))
          yield* step(() => dialog.getByLabel("Labels").fill("team=ui"))
          yield* step(() => dialog.getByText(/it has six fields/).waitFor())
          assert.strictEqual(yield* step(() => dialog.getByText(/it has six fields/).count()), 1)
          const create = dialog.getByRole("button", { name: "Create the schedule" })
          assert.isTrue(yield* step(() => create.isDisabled()))
          yield* step(() => dialog.getByLabel("Times", { exact: true }).fill("0 4 * * *"))
          const times = dialog.getByRole("list", { name: "Next times" }).getByRole("listitem")
          yield* step(() => times.nth(9).waitFor())
          assert.match((yield* step(() => times.first().textContent())) ?? "", /04:00 Asia\/Kathmandu/)
          yield* step(() => dialog.getByText("1 server today.").waitFor())
          yield* step(() => dialog.getByLabel("Server", { exact: true }).fill("lobby"))
          yield* step(() => times.nth(9).waitFor())
          yield* step(() => dialog.getByText("1 server today.").waitFor())
          yield* step(() => steps.fill("dance"))
          yield* step(() => dialog.getByText("This line is no step: dance").waitFor())
          yield* step(() => steps.fill("command=hello\nwait=1s"))
          yield* step(() => times.nth(9).waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => create.focus())
          yield* step(() => page.keyboard.press("Enter"))
          const card = page.getByRole("article", { name: "Schedule nightly" })
          yield* step(() => card.getByText(/04:00 Asia\/Kathmandu/).waitFor())
          yield* step(() => card.getByText("command=hello").waitFor())
          yield* step(() => card.getByRole("button", { name: "Run now" }).click())
          yield* step(() => card.getByRole("button", { name: "Show the runs" }).click())
          const runs = card.getByRole("list", { name: "Runs, newest first" })
          yield* step(() => runs.getByText("1 done").waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => card.getByRole("button", { name: "Actions on nightly" }).click())
          yield* step(() => card.getByRole("menuitem", { name: "Change…" }).click())
          yield* step(() => steps.fill("wait=1h"))
          yield* step(() => dialog.getByRole("button", { name: "Save" }).click())
          yield* step(() => card.getByText("wait=1h").waitFor())
          yield* step(() => card.getByRole("button", { name: "Run now" }).click())
          yield* step(() => runs.getByRole("button", { name: "Cancel…" }).click())
          yield* step(() => dialog.getByRole("button", { name: "Cancel the run" }).click())
          yield* step(() => runs.getByText("a caller has cancelled it").first().waitFor())
          yield* step(() => card.getByRole("button", { name: "Pause" }).click())
          yield* step(() => card.locator(".status").getByText("paused").waitFor())
          yield* step(() => card.getByRole("button", { name: "Resume" }).click())
          yield* step(() => card.getByRole("button", { name: "Pause" }).waitFor())
          yield* step(() => card.getByRole("button", { name: "Actions on nightly" }).click())
          yield* step(() => card.getByRole("menuitem", { name: "Delete…" }).click())
          yield* step(() => dialog.getByRole("button", { name: "Delete nightly" }).click())
          yield* shows(page, "No schedule yet")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a schedule of a blueprint names its source, runs, and cannot be changed",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* running(api, "kept")
          writeFileSync(
            join(api.folders.blueprints, "timed.yml"),
            blueprintFile("timed", "game", {
              rest: { schedules: [{ name: "hourly", cron: "0 * * * *", steps: [{ wait: 1 }] }] }
            })
          )
          yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
          const opened = yield* openPage(yield* browser, api, "/dashboard/schedules")
          const { page } = opened
          const card = page.getByRole("article", { name: "Schedule hourly" })
          yield* step(() => card.getByText("blueprint timed", { exact: true }).nth(1).waitFor())
          const pause = card.getByRole("button", { name: "Pause" })
          assert.isTrue(yield* step(() => pause.isDisabled()))
          yield* step(() => card.getByRole("button", { name: "Run now" }).click())
          yield* step(() => card.getByText(/^(?:running|skipped)$/).waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          rmSync(join(api.folders.blueprints, "timed.yml"))
          yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
          yield* shows(page, "No schedule yet")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "on a phone, the page fits, shows why servers failed, and works for a reader of the dark theme",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "kept")
          const body = {
            ...{ name: "fails", server_id: id, cron: "0 4 * * *", timezone: "America/New_York" },
            steps: [{ command: ["x"] }]
          }
          const { json } = yield* expectStatus(api, 201, "POST", "/api/schedules", { body })
          yield* expectStatus(api, 202, "POST", `/api/schedules/${json.id}/run`)
          const opened = yield* openPage(yield* browser, api, "/dashboard/schedules", {
            dark: true,
            width: 390
          })
          const { page } = opened
          const card = page.getByRole("article", { name: "Schedule fails" })
          yield* step(() => card.getByRole("button", { name: "Show the runs" }).click())
          yield* step(() =>
            card
              .getByText(/step 1: server is offline/)
              .first()
              .waitFor()
          )
          const isWithin = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
          assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          yield* step(() => card.getByText("is deleted: its times are skipped").waitFor())
          assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
