import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { idOfBase } from "../../src/daemon/backups/target.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { Muster } from "../support/Muster.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

const isWithin = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
const secret = "a-secret-that-no-page-shows"

describe.runIf(chromium !== undefined)(`dashboard: targets of backups${chromiumNote}`, () => {
  const allowed = mkdtempSync(join(tmpdir(), "muster-targets-"))
  afterAll(() => rmSync(allowed, { recursive: true }))
  const service = Muster.layer(games, {
    MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:28920-28939",
    MUSTER_BACKUP_ALLOW_PRIVATE: "true",
    MUSTER_NODE_BACKUP_FOLDERS: allowed
  })
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "spec 12.6: targets are defined, tested, changed and deleted, on a phone, too; no secret is shown",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const launched = yield* browser
          for (const look of [{}, { dark: true, width: 360 }]) {
            const opened = yield* openPage(launched, api, "/dashboard/targets", look)
            const { page } = opened
            const dialog = page.getByRole("dialog")
            const row = (name: string) => page.getByRole("row", { name: new RegExp(`^${name} `) })
            const fits = Effect.gen(function* () {
              assert.deepStrictEqual(yield* violationsOf(page), [])
              assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
            })
            yield* step(() => row("node").getByText("always there").waitFor())
            yield* fits

            yield* step(() => page.getByRole("button", { name: "New target" }).focus())
            yield* step(() => page.keyboard.press("Enter"))
            yield* step(() => dialog.getByLabel("Id").fill("nas"))
            yield* step(() => dialog.getByLabel("Where").selectOption("node"))
            yield* step(() => dialog.getByLabel("Folder", { exact: true }).fill("/mnt/other"))
            yield* fits
            yield* step(() => page.keyboard.press("Enter"))
            yield* step(() => row("nas").getByText("/mnt/other").waitFor())
            yield* step(() => row("nas").getByRole("button", { name: "Test…" }).click())
            yield* step(() => dialog.getByRole("button", { name: "Test", exact: true }).click())
            yield* shows(page, /MUSTER_NODE_BACKUP_FOLDERS of the node does not allow \/mnt\/other/)
            yield* step(() => row("nas").getByRole("button", { name: "Change…" }).click())
            yield* step(() => dialog.getByLabel("Folder", { exact: true }).fill(join(allowed, "nas")))
            yield* step(() => dialog.getByRole("button", { name: "Store" }).click())
            yield* step(() => row("nas").getByText(join(allowed, "nas")).waitFor())
            yield* step(() => row("nas").getByRole("button", { name: "Test…" }).click())
            yield* step(() => dialog.getByRole("button", { name: "Test", exact: true }).click())
            yield* shows(page, "nas works")

            yield* step(() => page.getByRole("button", { name: "New target" }).click())
            yield* step(() => dialog.getByLabel("Id").fill("offsite"))
            yield* step(() => dialog.getByLabel("Endpoint").fill("http://s3.invalid"))
            yield* step(() => dialog.getByLabel("Region").fill("eu-west-1"))
            yield* step(() => dialog.getByLabel("Bucket", { exact: true }).fill("kept"))
            yield* step(() => dialog.getByLabel("Access key", { exact: true }).fill("AKIA"))
            const typed = dialog.getByLabel("Secret access key")
            assert.strictEqual(yield* step(() => typed.getAttribute("type")), "password")
            yield* step(() => typed.fill(secret))
            yield* fits
            yield* step(() => dialog.getByRole("button", { name: "Create the target" }).click())
            yield* step(() => row("offsite").getByText("kept", { exact: true }).waitFor())
            yield* step(() => row("offsite").getByRole("button", { name: "Change…" }).click())
            assert.strictEqual(yield* step(() => dialog.getByLabel("Secret access key").inputValue()), "")
            yield* step(() => dialog.getByLabel("Prefix").fill("muster"))
            yield* step(() => dialog.getByRole("button", { name: "Store" }).click())
            yield* step(() => row("offsite").getByText("kept/muster").waitFor())
            assert.notInclude(yield* step(() => page.content()), secret)
            yield* fits
            for (const id of ["nas", "offsite"]) {
              yield* step(() => row(id).getByRole("button", { name: "Delete…" }).click())
              yield* step(() => dialog.getByRole("button", { name: `Delete ${id}` }).click())
              yield* step(() => row(id).waitFor({ state: "detached" }))
            }
            yield* assertClean(opened)
          }
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.6: a backup and a step of a schedule choose a target",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const folder = join(allowed, "chosen")
          yield* expectStatus(api, 201, "POST", "/api/backup-targets", {
            body: { id: "chosen", type: "node", folder }
          })
          const server = yield* installed(api, "kept", { name: "lobby" })
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${server}#backups`, {
            width: 390
          })
          const { page } = opened
          const dialog = page.getByRole("dialog")
          yield* step(() => page.getByRole("button", { name: "Back up now…" }).click())
          yield* step(() => dialog.getByLabel("Target").selectOption("chosen"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Back up", exact: true }).click())
          yield* step(() => page.getByRole("row").getByText("done", { exact: true }).waitFor())
          const stored = readdirSync(folder)
          assert.lengthOf(
            stored.filter((name) => idOfBase(name) === undefined),
            1,
            stored.join()
          )

          yield* step(() => page.goto(`${api.url}/dashboard/schedules`))
          yield* step(() => page.getByRole("button", { name: "New schedule" }).click())
          yield* step(() => dialog.getByLabel("Name").fill("nightly"))
          yield* step(() => dialog.getByLabel("Times", { exact: true }).fill("0 4 * * *"))
          yield* step(() => dialog.getByLabel("Server", { exact: true }).fill(server))
          yield* step(() => dialog.getByLabel("Add a step").selectOption({ label: "Back up to chosen" }))
          yield* step(() => dialog.getByText("1 server today.").waitFor())
          yield* step(() => dialog.getByRole("button", { name: "Create the schedule" }).click())
          yield* step(() => page.getByText("backup=chosen").waitFor())
          const [schedule] = (yield* expectStatus(api, 200, "GET", "/api/schedules")).json
          assert.deepStrictEqual(schedule.steps, [{ backup: { target: "chosen" } }])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
