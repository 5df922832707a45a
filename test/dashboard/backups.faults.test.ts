import { execFileSync } from "node:child_process"
import { truncateSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { until } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { becomes, expectStatus, installed, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

const rowOf = (page: Page, name: string | RegExp) => page.getByRole("row", { name })
const tabOf = (page: Page, name: string) =>
  page.getByRole("navigation", { name: "Parts of the server" }).getByRole("link", { name })
const isWithin = "document.documentElement.scrollWidth === document.documentElement.clientWidth"

/** Chooses an action of the menu of a backup with the keyboard. */
const choose = Effect.fnUntraced(function* (page: Page, name: string, item: string) {
  const menu = page.getByRole("button", { name: `Actions on the backup ${name}` })
  yield* step(() => menu.focus())
  yield* step(() => page.keyboard.press("Enter"))
  const chosen = page.getByRole("menuitem", { name: item, exact: true })
  yield* until(
    "the first item has the focus",
    step(() => page.evaluate<boolean>(`document.activeElement.role === "menuitem"`))
  )
  yield* step(() => chosen.focus())
  yield* step(() => page.keyboard.press("Enter"))
})

describe.runIf(chromium !== undefined)(`dashboard: backups${chromiumNote}`, () => {
  const service = Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27900-27999" })
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    it.effect(
      "spec 12.1: a backup is made, pinned, checked, downloaded and deleted with the keyboard, on a phone, too",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const launched = yield* browser
          const server = yield* installed(api, "kept", { name: "lobby" })
          const level = `/api/servers/${server}/files/content?path=/world/level.dat`
          yield* expectStatus(api, 201, "PUT", level, { raw: "level" })
          for (const look of [{}, { dark: true, width: 360 }]) {
            const opened = yield* openPage(launched, api, `/dashboard/servers/${server}#backups`, look)
            const { page } = opened
            const dialog = page.getByRole("dialog")
            yield* shows(page, "No backup yet")
            assert.deepStrictEqual(yield* violationsOf(page), [])
            yield* step(() => page.getByRole("button", { name: "Back up now…" }).focus())
            yield* step(() => page.keyboard.press("Enter"))
            yield* step(() => dialog.locator("input:focus").waitFor())
            yield* step(() => page.keyboard.type("before the event"))
            assert.deepStrictEqual(yield* violationsOf(page), [])
            yield* step(() => page.keyboard.press("Enter"))
            const row = rowOf(page, /before the event/)
            yield* step(() => row.getByText("done", { exact: true }).waitFor())
            yield* step(() => row.getByText("2 files, the server was offline").waitFor())
            assert.deepStrictEqual(yield* violationsOf(page), [])
            assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
            yield* choose(page, "before the event", "Pin")
            yield* step(() => row.getByText("pinned", { exact: true }).waitFor())
            yield* choose(page, "before the event", "Check every part")
            yield* shows(page, "Checked: before the event")
            yield* choose(page, "before the event", "Drill: start a server of it")
            yield* shows(page, "A server of the backup ran: before the event")
            yield* step(() => row.getByText(/a server of it ran in the drill of/).waitFor())
            const arrives = page.waitForEvent("download")
            yield* step(() => row.getByRole("button", { name: "Download" }).click())
            const download = yield* step(() => arrives)
            const archive = `${yield* temporaryFolder}/backup.tar.zst`
            yield* step(() => download.saveAs(archive))
            const listed = execFileSync("tar", ["--zstd", "-tf", archive], { encoding: "utf8" })
            assert.include(listed.split("\n"), "./server.sh")
            yield* choose(page, "before the event", "Browse…")
            const files = page.getByRole("dialog", { name: "Files of before the event" })
            const script = files.getByRole("row", { name: /server\.sh/ })
            yield* step(() => script.waitFor())
            assert.deepStrictEqual(yield* violationsOf(page), [])
            const comes = page.waitForEvent("download")
            yield* step(() => script.getByRole("button", { name: "Download" }).click())
            const one = yield* step(() => comes)
            assert.strictEqual(one.suggestedFilename(), "server.sh")
            const folder = files.getByRole("button", { name: "world" })
            yield* step(() => folder.focus())
            yield* step(() => page.keyboard.press("Enter"))
            yield* step(() => files.getByText("level.dat").waitFor())
            yield* step(() => files.getByRole("button", { name: "/", exact: true }).click())
            yield* step(() => script.waitFor())
            yield* step(() => page.keyboard.press("Escape"))
            yield* choose(page, "before the event", "Rename…")
            yield* step(() => dialog.getByLabel("Name").fill("after the event"))
            yield* step(() => page.keyboard.press("Enter"))
            yield* step(() => rowOf(page, /after the event/).waitFor())
            const [{ id }] = (yield* expectStatus(api, 200, "GET", "/api/backups")).json
            truncateSync(join(api.dataDir, "node/backups", id, "part-00001"), 10)
            yield* choose(page, "after the event", "Check every part")
            const damaged = rowOf(page, /after the event/)
            yield* step(() => damaged.getByText("damaged", { exact: true }).waitFor())
            yield* step(() =>
              damaged.getByText(/^The check of .* failed: .* is damaged: it has 10 of/).waitFor()
            )
            yield* choose(page, "after the event", "Delete…")
            yield* step(() => dialog.getByText(/although it is pinned/).waitFor())
            yield* step(() => dialog.getByRole("button", { name: "Delete after the event" }).click())
            yield* shows(page, "No backup yet")
            yield* assertClean(opened)
          }
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.10: the dialog of a server that is up says what happens while its files are read",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* running(api, "kept", { name: "arena" })
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${server}#backups`, {
            width: 390
          })
          const { page } = opened
          yield* step(() => page.getByRole("button", { name: "Back up now…" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByLabel("Name").fill("frozen"))
          yield* step(() => dialog.getByLabel("While the files are read").selectOption("pause"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
          yield* step(() => dialog.getByRole("button", { name: "Back up" }).click())
          yield* step(() =>
            rowOf(page, /frozen/)
              .getByText("the server was frozen")
              .waitFor()
          )
          yield* becomes(api, server, "running")
          yield* assertClean(opened)
        }).pipe(Effect.scoped)
    )

    it.effect(
      "spec 12.5: a reader who knows no document restores last night's world of a server that is up",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* running(api, "kept", { name: "survival" })
          const content = `/api/servers/${server}/files/content?path=/level.dat`
          yield* expectStatus(api, 201, "PUT", content, { raw: "last night" })
          yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, {
            body: { name: "nightly" },
            headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
          })
          yield* expectStatus(api, 204, "PUT", content, { raw: "griefed" })
          const opened = yield* openPage(yield* browser, api, "/dashboard", { width: 390 })
          const { page } = opened
          yield* step(() => page.getByRole("link", { name: "survival" }).first().click())
          yield* step(() => tabOf(page, "Backups").click())
          const row = rowOf(page, /nightly/)
          yield* step(() => row.getByRole("button", { name: "Restore…" }).click())
          const dialog = page.getByRole("dialog", { name: "Restore survival?" })
          yield* step(() => dialog.getByText("The server is up. It stops first").waitFor())
          yield* step(() => dialog.getByText("Changes: 1 (10 B)").waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
          yield* step(() => dialog.getByRole("button", { name: "Stop and restore" }).click())
          yield* shows(page, "Restored: survival")
          yield* step(() => rowOf(page, /before nightly/).waitFor())
          yield* becomes(api, server, "running")
          assert.strictEqual((yield* expectStatus(api, 200, "GET", content)).text, "last night")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.5: a folder is chosen out of a backup and restored, and what the backup lacks stays if chosen",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept", { name: "partly" })
          const content = (path: string) => `/api/servers/${server}/files/content?path=${path}`
          const put = (path: string, raw: string) => api.request("PUT", content(path), { raw })
          const textOf = (path: string) => Effect.map(api.request("GET", content(path)), ({ text }) => text)
          const paths = ["/world/level.dat", "/ops.json"]
          yield* Effect.forEach(paths, (path) => put(path, "old"))
          yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, {
            body: { name: "nightly" },
            headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
          })
          yield* Effect.forEach([...paths, "/world/late.dat"], (path) => put(path, "new"))
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${server}#backups`, {
            width: 360
          })
          const { page } = opened
          yield* step(() =>
            rowOf(page, /nightly/)
              .getByRole("button", { name: "Restore…" })
              .click()
          )
          const dialog = page.getByRole("dialog", { name: "Restore partly?" })
          yield* step(() => dialog.getByLabel("What to restore").selectOption("some"))
          const button = dialog.getByRole("button", { name: "Restore", exact: true })
          yield* step(() => dialog.getByText("Choose a file or folder first.").waitFor())
          assert.isTrue(yield* step(() => button.isDisabled()))
          yield* step(() => dialog.getByRole("button", { name: "world" }).focus())
          yield* step(() => page.keyboard.press("Enter"))
          const level = dialog.getByLabel("Choose /world/level.dat")
          yield* step(() => level.focus())
          yield* step(() => page.keyboard.press("Space"))
          yield* step(() => dialog.getByText("Is deleted: nothing").waitFor())
          yield* step(() => dialog.getByRole("button", { name: "/", exact: true }).click())
          yield* step(() => dialog.getByLabel("Choose /world").check())
          const chosen = dialog.getByRole("group", { name: "Chosen files and folders" })
          yield* step(() => dialog.getByText("Is deleted: 1 (3 B)").waitFor())
          assert.strictEqual(yield* step(() => chosen.textContent()), "/world")
          yield* step(() => dialog.getByRole("button", { name: "world", exact: true }).click())
          assert.isTrue(yield* step(() => level.isDisabled()))
          yield* step(() => dialog.getByLabel("Files that are not in the backup").selectOption("merge"))
          yield* step(() => dialog.getByText("Is deleted: nothing").waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          assert.isTrue(yield* step(() => page.evaluate<boolean>(isWithin)))
          yield* step(() => button.click())
          yield* shows(page, "It has the chosen files and folders of the backup nightly.")
          assert.deepStrictEqual(yield* Effect.forEach([...paths, "/world/late.dat"], textOf), [
            "old",
            "new",
            "new"
          ])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.1: backups of other callers appear by themselves; the page of a deleted server still has them",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept")
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${server}#backups`)
          const { page } = opened
          yield* shows(page, "No backup yet")
          yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, {
            body: { name: "nightly" },
            headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
          })
          yield* step(() =>
            rowOf(page, /nightly/)
              .getByText("done", { exact: true })
              .waitFor()
          )
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}`)
          yield* step(() => page.reload())
          yield* shows(page, "This server does not exist")
          yield* step(() => rowOf(page, /nightly/).waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.keyboard.press("G"))
          yield* step(() => page.keyboard.press("B"))
          yield* step(() => page.getByLabel("Filter servers and names").fill(server))
          const row = rowOf(page, /nightly/)
          yield* step(() => row.getByRole("link", { name: server }).waitFor())
          assert.strictEqual(yield* step(() => row.getByRole("button", { name: "Restore…" }).count()), 0)
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => row.getByRole("button", { name: "New server…" }).click())
          const dialog = page.getByRole("dialog", { name: "New server from this backup" })
          yield* step(() => dialog.getByLabel("Name").fill("again"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Create the server" }).click())
          yield* step(() => page.getByRole("heading", { name: "again" }).waitFor())
          const [made] = (yield* expectStatus(api, 200, "GET", "/api/servers?q=again&include=name")).json
          yield* becomes(api, made.id, "running")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.1: the page of all backups names the schedule that made one, and restores the server of one",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept", { name: "timely" })
          const content = `/api/servers/${server}/files/content?path=/level.dat`
          yield* expectStatus(api, 201, "PUT", content, { raw: "last night" })
          const body = {
            ...{ name: "each night", server_id: server, cron: "0 4 * * *", timezone: "UTC" },
            steps: [{ backup: {} }]
          }
          const { json } = yield* expectStatus(api, 201, "POST", "/api/schedules", { body })
          yield* expectStatus(api, 202, "POST", `/api/schedules/${json.id}/run`)
          const opened = yield* openPage(yield* browser, api, "/dashboard/backups", { width: 390 })
          const { page } = opened
          const row = rowOf(page, /timely.*each night.*done/s)
          yield* step(() => row.waitFor())
          yield* expectStatus(api, 204, "PUT", content, { raw: "griefed" })
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => row.getByRole("button", { name: "Restore…" }).click())
          const dialog = page.getByRole("dialog", { name: "Restore timely?" })
          yield* step(() => dialog.getByText("Changes: 1 (10 B)").waitFor())
          yield* step(() => dialog.getByRole("button", { name: "Restore", exact: true }).click())
          yield* shows(page, "Restored: timely")
          assert.strictEqual((yield* expectStatus(api, 200, "GET", content)).text, "last night")
          yield* step(() => row.getByRole("link", { name: "each night" }).click())
          yield* step(() => page.getByRole("article", { name: "Schedule each night" }).waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.1: on a phone, the menu of the last row opens where the bar of pages does not cover it",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept", { name: "low" })
          yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, {
            headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" },
            body: { name: "the first" }
          })
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${server}#backups`, {
            width: 360
          })
          const { page } = opened
          const menu = page.getByRole("button", { name: "Actions on the backup the first" })
          for (const height of [850, 480]) {
            yield* step(() => page.setViewportSize({ width: 360, height }))
            yield* step(() => menu.evaluate((button) => button.scrollIntoView({ block: "end" })))
            yield* step(() => menu.click())
            const last = page.getByRole("menuitem", { name: "Delete…" })
            const shown = yield* step(() => last.boundingBox())
            const bar = yield* step(() => page.getByRole("navigation", { name: "Pages" }).boundingBox())
            assert.isAtMost((shown?.y ?? height) + (shown?.height ?? 0), bar?.y ?? 0)
            assert.isAtLeast(
              (yield* step(() => page.getByRole("menuitem").first().boundingBox()))?.y ?? -1,
              0
            )
            yield* step(() => page.keyboard.press("Escape"))
          }
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "spec 12.1: a key with backups deletes none, and says why; a key without it has no such tab",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const launched = yield* browser
          const server = yield* installed(api, "kept")
          yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, {
            body: { name: "kept one" },
            headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
          })
          const { key: keeper } = yield* keyed("Operator", { allow: ["backups"] })
          const path = `/dashboard/servers/${server}#backups`
          const { page } = yield* openPage(launched, api, path, { key: keeper })
          yield* step(() => page.getByRole("button", { name: "Actions on the backup kept one" }).click())
          yield* step(() => page.getByText("The key “test” lacks the right restore.").first().waitFor())
          const { key: operator } = yield* keyed("Operator")
          const { page: other } = yield* openPage(launched, api, path, { key: operator })
          yield* step(() => other.getByText("Operator").waitFor())
          yield* step(() => tabOf(other, "Changes").waitFor())
          assert.strictEqual(yield* step(() => tabOf(other, "Backups").count()), 0)
        }).pipe(Effect.scoped),
      slow
    )
  })
})
