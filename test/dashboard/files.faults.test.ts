import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { Locator, Page } from "playwright-core"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { connect, sftpOf } from "../controlPlane/sftp/support/sftp.ts"
import { chromium, chromiumNote } from "../support/browser.ts"
import { until } from "../support/eventually.ts"
import { tcpProxy } from "../support/faults/index.ts"
import { Muster } from "../support/Muster.ts"
import type { Service } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { zip } from "../support/zip.ts"
import { assertClean, browser, openPage, shows, slow, step, violationsOf } from "./browser.ts"
import { games } from "./definitions.ts"

type Api = Pick<Service, "request">

const contentOf = (id: string, path: string) =>
  `/api/servers/${id}/files/content?path=${encodeURIComponent(path)}`

const write = (api: Api, id: string, path: string, text: string) =>
  api.request("PUT", contentOf(id, path), {
    raw: text,
    headers: { "content-type": "application/octet-stream" }
  })

const textOf = (api: Api, id: string, path: string) =>
  Effect.map(expectStatus(api, 200, "GET", contentOf(id, path)), ({ text }) => text)

const namesIn = (api: Api, id: string, path: string) =>
  Effect.map(
    expectStatus(api, 200, "GET", `/api/servers/${id}/files?path=${encodeURIComponent(path)}`),
    ({ json }): ReadonlyArray<string> => json.map(({ name }: { readonly name: string }) => name)
  )

const MIB = 2 ** 20

const filesPage = (id: string, path = "") => `/dashboard/servers/${id}#files${path}`

const link = (page: Page, name: string) => page.getByRole("link", { name, exact: true })

const select = (page: Page, name: string) =>
  step(() => page.getByRole("checkbox", { name: `Select ${name}`, exact: true }).check())

const focused = (page: Page, text: string) =>
  until(
    `${text} has the focus`,
    step(() => page.evaluate<boolean>(`document.activeElement.textContent === ${JSON.stringify(text)}`))
  )

const hostile = "<img src=x onerror=alert(1)> %41 \u202egpj.\"'"
/** As the page shows it. */
const shownHostile = hostile.replace("\u202e", "\\u202e")

/** Types over the whole text of the editor. */
const retype = Effect.fnUntraced(function* (page: Page, name: string, text: string) {
  yield* step(() => page.getByLabel(`Contents of ${name}`).click())
  yield* step(() => page.keyboard.press("Control+a"))
  yield* step(() => page.keyboard.type(text))
})

describe.runIf(chromium !== undefined)(`dashboard: files${chromiumNote}`, () => {
  const service = Muster.layer(games, {
    MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:27600-27699",
    MUSTER_SFTP_PORT: "0"
  })
  layer(service, { ...slow, excludeTestServices: true })((it) => {
    const prepared = Effect.gen(function* () {
      const api = yield* Muster
      const id = yield* installed(api, "kept", {
        overrides: { configs: { "server.properties": { parser: "properties", find: { motd: "Hi" } } } }
      })
      yield* write(api, id, "/plugins/maps/spawn.yml", "spawn: 1\nworld: lobby\n")
      yield* write(api, id, "/plugins/shop.yml", "prices: 2\n")
      yield* write(api, id, "/notes.txt", "first\nsecond needle\n")
      return { api, id }
    })

    it.effect(
      "folders come first; links, steps back and the keyboard move between them; names are filtered",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, `/dashboard/servers/${id}`)
          const { page } = opened
          yield* step(() => page.getByRole("link", { name: "Files" }).click())
          yield* step(() => link(page, "plugins").waitFor())
          const names = yield* step(() => page.locator(".file-link").allTextContents())
          assert.deepStrictEqual(names.indexOf("plugins"), 0)
          assert.includeMembers(names, ["notes.txt", "server.sh"])
          yield* step(() => link(page, "plugins").focus())
          yield* step(() => page.keyboard.press("Enter"))
          yield* focused(page, "maps")
          assert.match(page.url(), /#files\/plugins\/$/)
          yield* step(() => page.keyboard.press("ArrowDown"))
          yield* focused(page, "shop.yml")
          yield* step(() => page.keyboard.press("F2"))
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByLabel("Name").fill("market.yml"))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() => link(page, "market.yml").waitFor())
          yield* step(() => link(page, "market.yml").focus())
          yield* step(() => page.keyboard.press("Delete"))
          yield* step(() => dialog.getByText("market.yml").first().waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Delete", exact: true }).click())
          yield* step(() => link(page, "market.yml").waitFor({ state: "detached" }))
          assert.deepStrictEqual(yield* namesIn(api, id, "/plugins"), ["maps"])
          yield* step(() => page.goBack())
          yield* focused(page, "plugins")
          yield* step(() => page.getByLabel("Filter names").fill("NOTE"))
          yield* shows(page, "1 entry")
          yield* step(() => page.goto(`${api.url}${filesPage(id, "/plugins/maps/")}`))
          yield* step(() => page.reload())
          yield* step(() => link(page, "spawn.yml").waitFor())
          // A folder with more entries than a page of the API.
          const asked: Array<string> = []
          yield* step(() =>
            page.route("**/files?*", (route) => {
              asked.push(route.request().url())
              return route.continue({ url: `${route.request().url()}&limit=1` })
            })
          )
          yield* step(() => page.goto(`${api.url}${filesPage(id)}`))
          yield* shows(page, "3 entries")
          yield* step(() =>
            page.getByRole("button", { name: "Show further entries" }).waitFor({ state: "detached" })
          )
          assert.lengthOf(asked, 3)
          yield* step(() => page.unroute("**/files?*"))
          yield* step(() => page.goto(`${api.url}${filesPage(id, "/no/such/")}`))
          yield* step(() => page.getByRole("alert").waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "SFTP… makes a password that opens the server, and copies it without reading it out",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, filesPage(id), { width: 390 })
          const { page } = opened
          yield* step(() => page.getByRole("button", { name: "SFTP…" }).click())
          const dialog = page.getByRole("dialog")
          yield* step(() => dialog.getByRole("button", { name: "Copy the password" }).waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          const { fingerprint, port } = sftpOf(api)
          yield* step(() => dialog.getByText(fingerprint).waitFor())
          yield* step(() => dialog.getByText(`sftp://${id}@127.0.0.1:${port}`).waitFor())
          const password = yield* step(() => dialog.getByText(/^sftp_[\w-]{32}$/).textContent())
          yield* connect(api, id, password ?? "")
          yield* step(() => dialog.getByRole("button", { name: "Copy the password" }).click())
          yield* step(() => page.getByText("Copied the password").waitFor({ state: "attached" }))
          yield* step(() => page.keyboard.press("Escape"))
          yield* step(() => dialog.waitFor({ state: "detached" }))
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "the actions on selected entries are in sight in a long folder on a phone",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          for (let n = 10; n < 40; n += 1) yield* write(api, id, `/long/${n}.txt`, "x")
          const opened = yield* openPage(yield* browser, api, filesPage(id, "/long/"), { width: 390 })
          const { page } = opened
          yield* select(page, "39.txt")
          const box = yield* step(() => page.getByRole("button", { name: "Delete…" }).boundingBox())
          const height = yield* step(() => page.evaluate<number>("innerHeight"))
          assert.isTrue(box !== null && box.y > 0 && box.y + box.height < height, JSON.stringify(box))
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "folders and files are made, moved, copied and deleted on a phone; names are texts",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          yield* write(api, id, `/${hostile}`, "x")
          const opened = yield* openPage(yield* browser, api, filesPage(id), { width: 390, dark: true })
          const { page } = opened
          yield* step(() => link(page, shownHostile).waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          const dialog = page.getByRole("dialog")
          yield* step(() => page.getByRole("button", { name: "New", exact: true }).click())
          const item = page.getByRole("menuitem", { name: "Folder…" })
          assert.isAtLeast((yield* step(() => item.boundingBox()))?.x ?? -1, 0)
          yield* step(() => item.click())
          yield* step(() => dialog.getByLabel("Name").fill("backup"))
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() => link(page, "backup").waitFor())
          // The whole row opens, its time, too.
          const [x, y] = yield* step(() =>
            page
              .getByRole("row", { name: "backup" })
              .locator("time")
              .evaluate((time) => {
                const { x, y } = time.getBoundingClientRect()
                return [x + 4, y + 4] as const
              })
          )
          yield* step(() => page.mouse.click(x, y))
          yield* shows(page, "This folder is empty")
          yield* step(() => page.goBack())
          yield* step(() => link(page, "backup").waitFor())
          yield* select(page, shownHostile)
          yield* step(() => page.getByRole("button", { name: "Copy…" }).click())
          yield* step(() => dialog.getByLabel("To folder").fill("/backup"))
          yield* step(() => page.keyboard.press("Enter"))
          yield* until(
            "the copy is there",
            Effect.map(namesIn(api, id, "/backup"), (names) => names.includes(hostile))
          )
          yield* select(page, shownHostile)
          yield* step(() => page.getByRole("button", { name: "Move…" }).click())
          yield* step(() => dialog.getByLabel("To folder").fill("/backup"))
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() => dialog.getByRole("alert").waitFor())
          yield* step(() => dialog.getByLabel("Replace files").check())
          yield* step(() => dialog.getByRole("button", { name: "Move", exact: true }).click())
          yield* step(() => link(page, shownHostile).waitFor({ state: "detached" }))
          yield* select(page, "backup")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.getByRole("button", { name: "Delete…" }).click())
          yield* step(() => dialog.getByRole("button", { name: "Delete", exact: true }).click())
          yield* step(() => link(page, "backup").waitFor({ state: "detached" }))
          assert.notInclude(yield* namesIn(api, id, "/"), "backup")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "folders are uploaded; one answer decides about all files that exist",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const source = join(yield* temporaryFolder, "plugins")
          mkdirSync(join(source, "maps"), { recursive: true })
          writeFileSync(join(source, "shop.yml"), "prices: 3\n")
          writeFileSync(join(source, "100%25.txt"), "percent")
          writeFileSync(join(source, "maps", "end.bin"), Buffer.alloc(3_000_000, 7))
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          yield* step(() => link(page, "plugins").waitFor())
          const asked = page.waitForEvent("filechooser")
          yield* step(() => page.getByRole("button", { name: "Upload", exact: true }).click())
          yield* step(() => page.getByRole("menuitem", { name: "A folder…" }).click())
          const chooser = yield* step(() => asked)
          yield* step(() => chooser.setFiles(source))
          yield* shows(page, "1 file exists already.")
          yield* shows(page, "2 of 3 files uploaded")
          assert.strictEqual(yield* textOf(api, id, "/plugins/shop.yml"), "prices: 2\n")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.getByRole("button", { name: "Replace all" }).click())
          yield* shows(page, "3 of 3 files uploaded")
          assert.strictEqual(yield* textOf(api, id, "/plugins/shop.yml"), "prices: 3\n")
          assert.deepStrictEqual(yield* namesIn(api, id, "/plugins/maps"), ["end.bin", "spawn.yml"])
          // The name of the local file, as the API shows it (spec 10.2).
          assert.include(yield* namesIn(api, id, "/plugins"), "100%2525.txt")
          yield* step(() => page.getByRole("button", { name: "Close", exact: true }).click())
          yield* step(() => page.getByRole("region", { name: "Uploads" }).waitFor({ state: "detached" }))
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "an upload that fails is sent again, one that is paused goes on, one that is cancelled leaves nothing",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          yield* step(() => link(page, "plugins").waitFor())
          let isBroken = true
          yield* step(() =>
            page.route("**/files/content*", (route) =>
              isBroken && route.request().method() === "PUT" ? route.abort() : route.continue()
            )
          )
          const upload = (...names: ReadonlyArray<string>) =>
            step(() =>
              page
                .locator('input[type="file"]')
                .setInputFiles(
                  names.map((name) => ({ name, mimeType: "text/plain", buffer: Buffer.from(name) }))
                )
            )
          yield* upload("one.txt", "two.txt")
          yield* shows(page, "The connection broke")
          isBroken = false
          yield* step(() => page.getByRole("button", { name: "Retry 2 failed" }).click())
          yield* shows(page, "2 of 2 files uploaded")
          yield* step(() => page.getByRole("button", { name: "Close", exact: true }).click())

          const held = Promise.withResolvers<void>()
          yield* step(() =>
            page.route("**/files/content*", async (route) => {
              await held.promise
              await route.continue().catch(() => undefined)
            })
          )
          yield* upload("three.txt", "four.txt")
          yield* step(() => page.getByRole("button", { name: "Pause" }).click())
          yield* shows(page, "smaller ones are sent again from their beginning")
          held.resolve()
          yield* step(() => page.getByRole("button", { name: "Cancel /four.txt" }).click())
          yield* step(() => page.getByRole("button", { name: "Resume" }).click())
          yield* shows(page, "1 of 1 file uploaded")
          const names = yield* namesIn(api, id, "/")
          assert.includeMembers([...names], ["one.txt", "two.txt", "three.txt"])
          assert.notInclude(names, "four.txt")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a large upload continues at its offset: after a break, a pause, and a load of the page with the same file",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const folder = yield* temporaryFolder
          const world = join(folder, "world.bin")
          writeFileSync(world, Buffer.from(Array.from({ length: 48 * MIB }, (_, at) => (at >> 8) % 253)))
          const proxy = yield* tcpProxy(Number(new URL(api.url).port))
          const proxied = { key: api.key, url: proxy.through(api.url) }
          const opened = yield* openPage(yield* browser, proxied, filesPage(id, "/plugins/"))
          const { page } = opened
          yield* step(() => link(page, "shop.yml").waitFor())
          const session = yield* step(() => page.context().newCDPSession(page))
          yield* step(() => session.send("Network.enable"))
          const limit = (uploadThroughput: number) =>
            step(async () => {
              await session.send("Network.emulateNetworkConditions", {
                offline: false,
                latency: 0,
                downloadThroughput: -1,
                uploadThroughput
              })
            })
          const offsets: Array<number> = []
          page.on("request", (request) => {
            const offset = request.headers()["upload-offset"]
            if (request.method() === "PATCH" && offset !== undefined) offsets.push(Number(offset))
          })
          const arrived = () =>
            Math.max(
              ...globSync(join(api.dataDir, `**/${id}/**/.muster-*.tmp`)).map(
                // The upload may end meanwhile.
                (file) => statSync(file, { throwIfNoEntry: false })?.size ?? 0
              )
            )
          const reaches = (mib: number) => until(`${mib} MiB are there`, () => arrived() >= mib * MIB)
          const remembered = step(() =>
            page.evaluate<string | null>("sessionStorage.getItem('muster.uploads')")
          )
          const choose = (button: Locator, file: string) =>
            step(async () => {
              const asked = page.waitForEvent("filechooser")
              await button.click()
              await (await asked).setFiles(file)
            })
          yield* limit(12 * MIB)
          yield* step(() => page.locator('input[type="file"][multiple]').setInputFiles(world))
          yield* reaches(8)
          yield* proxy.dropped.inject
          yield* shows(page, "waits for the service")
          yield* proxy.dropped.heal
          yield* reaches(14)
          yield* step(() => page.getByRole("button", { name: "Pause" }).click())
          yield* shows(page, "Files from 16 MiB on continue where they are")
          yield* shows(page, /^stopped at [2-9]\d%$/)
          yield* step(() => page.getByRole("button", { name: "Resume", exact: true }).click())
          yield* reaches(20)
          assert.deepStrictEqual(opened.problems(), [])
          // The page asks before it leaves an upload.
          page.removeAllListeners("dialog").on("dialog", (dialog) => void dialog.accept())
          yield* step(() => page.reload())
          const choice = page.getByRole("button", { name: "Choose the file to continue /plugins/world.bin" })
          yield* step(() => choice.waitFor())
          assert.deepStrictEqual(yield* violationsOf(page), [])
          const other = join(folder, "other.bin")
          writeFileSync(other, "other")
          yield* choose(choice, other)
          yield* shows(page, "is another file, or has changed")
          yield* limit(-1)
          yield* choose(choice, world)
          yield* shows(page, "1 of 1 file uploaded")
          yield* step(() => choice.waitFor({ state: "detached" }))
          const [first, ...others] = offsets
          assert.strictEqual(first, 0)
          assert.isTrue(others.length >= 3 && others.every((offset) => offset >= 8 * MIB), `${offsets}`)
          assert.isAtLeast(others.at(-1) ?? 0, 20 * MIB)
          const [stored = ""] = globSync(join(api.dataDir, `**/${id}/**/plugins/world.bin`))
          assert.isTrue(readFileSync(stored).equals(readFileSync(world)))
          assert.strictEqual(yield* remembered, "[]")

          // A cancelled upload leaves nothing on the server.
          yield* limit(12 * MIB)
          writeFileSync(other, readFileSync(world))
          yield* step(() => page.locator('input[type="file"][multiple]').setInputFiles(other))
          yield* reaches(4)
          yield* step(() => page.getByRole("button", { name: "Cancel /plugins/other.bin" }).click())
          yield* until("its bytes are gone", () => arrived() <= 0)
          assert.strictEqual(yield* remembered, "[]")
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a search opens a file at its line",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          yield* step(() => page.getByRole("button", { name: "Search…" }).click())
          yield* step(() => page.getByLabel("Text", { exact: true }).fill("needle"))
          yield* step(() => page.keyboard.press("Enter"))
          yield* shows(page, "second needle")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => link(page, "/notes.txt:2").click())
          yield* step(() => page.getByLabel("Contents of notes.txt").waitFor())
          yield* step(() => page.keyboard.type("the "))
          yield* step(() => page.locator(".cm-activeLine", { hasText: "the second needle" }).waitFor())
          yield* step(() => page.keyboard.press("Control+z"))
          yield* step(() => page.getByText("Changed, not saved").waitFor({ state: "detached" }))
          yield* step(() => page.goBack())
          yield* step(() => page.getByLabel("Name", { exact: true }).fill("spawn"))
          yield* step(() => page.getByLabel("Text", { exact: true }).fill(""))
          yield* step(() => page.keyboard.press("Enter"))
          yield* step(() => link(page, "/plugins/maps/spawn.yml").waitFor())
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a text is edited and saved; a change of another caller is shown before it is overwritten or taken",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          const dialog = page.getByRole("dialog")
          yield* step(() => link(page, "notes.txt").click())
          yield* retype(page, "notes.txt", "n mine")
          yield* shows(page, "Changed, not saved")
          yield* step(() => page.keyboard.press("Control+s"))
          yield* shows(page, "Saved: notes.txt")
          assert.strictEqual(yield* textOf(api, id, "/notes.txt"), "n mine")

          yield* write(api, id, "/notes.txt", "theirs")
          yield* retype(page, "notes.txt", "mine again")
          yield* step(() => page.getByRole("button", { name: "Save" }).click())
          yield* step(() =>
            dialog.getByRole("region", { name: "Text on the server" }).getByText("theirs").waitFor()
          )
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => dialog.getByRole("button", { name: "Overwrite with yours" }).click())
          yield* step(() => page.getByText("Changed, not saved").waitFor({ state: "detached" }))
          assert.strictEqual(yield* textOf(api, id, "/notes.txt"), "mine again")

          yield* write(api, id, "/notes.txt", "theirs again")
          yield* retype(page, "notes.txt", "lost")
          yield* step(() => page.keyboard.press("Control+s"))
          yield* step(() => dialog.getByRole("button", { name: "Take theirs" }).click())
          yield* step(() => page.locator(".cm-line", { hasText: "theirs again" }).waitFor())
          assert.strictEqual(yield* textOf(api, id, "/notes.txt"), "theirs again")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "an open text says that the file has changed, and shows the new one; own changes are compared with it",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          const dialog = page.getByRole("dialog")
          /** Lets the page look at the file, as it does every few seconds. */
          const looks = step(() => page.evaluate('document.dispatchEvent(new Event("visibilitychange"))'))
          yield* step(() => link(page, "notes.txt").click())
          yield* step(() => page.locator(".cm-line").first().waitFor())
          yield* write(api, id, "/notes.txt", "theirs")
          yield* looks
          yield* shows(page, "The file has changed on the server.")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* step(() => page.getByRole("button", { name: "Show the new text" }).click())
          yield* step(() => page.locator(".cm-line", { hasText: "theirs" }).waitFor())
          yield* step(() => page.getByText("has changed on the server").waitFor({ state: "detached" }))

          yield* retype(page, "notes.txt", "mine")
          yield* write(api, id, "/notes.txt", "theirs again")
          yield* looks
          yield* step(() => page.getByRole("button", { name: "Compare…" }).click())
          yield* step(() => dialog.getByRole("button", { name: "Overwrite with yours" }).click())
          yield* step(() => page.getByText("has changed on the server").waitFor({ state: "detached" }))
          assert.strictEqual(yield* textOf(api, id, "/notes.txt"), "mine")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a mark names the keys that the next start writes, in the list and in the editor",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          yield* write(api, id, "/server.properties", "motd=Mine\nport=1\n")
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          yield* step(() =>
            page
              .getByRole("row", { name: /server\.properties/ })
              .getByText("managed: motd")
              .waitFor()
          )
          yield* step(() => link(page, "server.properties").click())
          yield* shows(page, "The next start writes these keys again: motd.")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "the page asks before changes of a text are lost: tabs, steps back, reloads",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const { page, problems } = yield* openPage(yield* browser, api, filesPage(id))
          const question = page.getByRole("dialog", { name: "Discard the changes of notes.txt?" })
          const cancelled = Effect.gen(function* () {
            yield* step(() => question.getByRole("button", { name: "Cancel" }).click())
            yield* shows(page, "Changed, not saved")
          })
          yield* step(() => link(page, "notes.txt").click())
          yield* retype(page, "notes.txt", "mine")
          yield* step(() => page.getByRole("link", { name: "Changes" }).click())
          yield* cancelled
          yield* step(() => page.evaluate("history.back()"))
          yield* cancelled
          assert.match(page.url(), /#files\/notes\.txt$/)
          assert.deepStrictEqual(problems(), [])
          yield* step(() => Promise.all([page.waitForEvent("dialog"), page.evaluate("location.reload()")]))
          assert.deepStrictEqual(problems(), ["dialog: "])
          yield* shows(page, "Changed, not saved")
          yield* step(() => page.evaluate("history.back()"))
          yield* step(() => question.getByRole("button", { name: "Discard the changes" }).click())
          yield* step(() => link(page, "plugins").waitFor())
          yield* step(() => link(page, "notes.txt").click())
          yield* step(() => page.locator(".cm-line", { hasText: "second needle" }).waitFor())
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "files and folders are downloaded; what is no text has no editor",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const opened = yield* openPage(yield* browser, api, filesPage(id))
          const { page } = opened
          const downloaded = Effect.fnUntraced(function* (button: string) {
            const came = page.waitForEvent("download")
            yield* step(() => page.getByRole("button", { name: button, exact: true }).click())
            const download = yield* step(() => came)
            return {
              name: download.suggestedFilename(),
              bytes: readFileSync(yield* step(() => download.path()))
            }
          })
          yield* select(page, "notes.txt")
          const file = yield* downloaded("Download")
          assert.strictEqual(file.name, "notes.txt")
          assert.strictEqual(file.bytes.toString(), "first\nsecond needle\n")
          yield* step(() => page.getByRole("button", { name: "Clear the selection" }).click())
          yield* select(page, "plugins")
          const archive = yield* downloaded("Download")
          assert.match(archive.name, /\.zip$/)
          assert.strictEqual(archive.bytes.subarray(0, 2).toString(), "PK")
          assert.include(archive.bytes.toString("latin1"), "plugins/maps/spawn.yml")

          yield* expectStatus(api, 201, "PUT", contentOf(id, "/data.bin"), {
            raw: "\0\u0001",
            headers: { "content-type": "application/octet-stream" }
          })
          yield* step(() => page.getByRole("button", { name: "Refresh" }).click())
          yield* step(() => link(page, "data.bin").click())
          yield* shows(page, "This file has no editor")
          assert.deepStrictEqual(yield* violationsOf(page), [])
          assert.strictEqual((yield* downloaded("Download")).name, "data.bin")
          yield* assertClean(opened)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect(
      "a key with the right browse reads; one with paths begins at its folder; one without both has no tab",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* prepared
          const launched = yield* browser
          const { key: reader } = yield* keyed("ReadOnly", { allow: ["read", "browse"] })
          const opened = yield* openPage(launched, api, filesPage(id), { key: reader })
          const { page } = opened
          yield* select(page, "notes.txt")
          yield* step(() => page.getByRole("button", { name: "Download" }).waitFor())
          for (const name of ["New", "Upload", "Rename…", "Delete…"])
            assert.strictEqual(yield* step(() => page.getByRole("button", { name, exact: true }).count()), 0)
          yield* step(() => link(page, "notes.txt").click())
          yield* shows(page, "The key “test” lacks the right files. The file can be read only.")
          yield* step(() => page.getByLabel("Contents of notes.txt").click())
          yield* step(() => page.keyboard.type("x"))
          assert.strictEqual(yield* step(() => page.locator(".cm-line").first().textContent()), "first")
          assert.strictEqual(yield* step(() => page.getByRole("button", { name: "Save" }).count()), 0)
          yield* assertClean(opened)

          const { key: limited } = yield* keyed("Operator", { allow: ["files"], paths: ["/plugins/maps"] })
          const narrow = yield* openPage(launched, api, filesPage(id), { key: limited })
          yield* step(() => link(narrow.page, "spawn.yml").waitFor())
          assert.strictEqual(yield* step(() => narrow.page.locator(".crumbs a").count()), 0)
          yield* assertClean(narrow)

          const { key: other } = yield* keyed("ReadOnly")
          const without = yield* openPage(launched, api, filesPage(id), { key: other })
          yield* step(() => without.page.getByRole("link", { name: "Console" }).waitFor())
          // The tab shows until the rights of the key are read.
          yield* step(() => without.page.getByRole("link", { name: "Files" }).waitFor({ state: "detached" }))
          yield* assertClean(without)
        }).pipe(Effect.scoped),
      slow
    )

    it.effect("files without room have their reasons, and one hint for all", () =>
      Effect.gen(function* () {
        const { api, id } = yield* prepared
        const body = { overrides: { limits: { disk_space: 2 } } }
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body })
        const opened = yield* openPage(yield* browser, api, filesPage(id, "/plugins/"))
        const { page } = opened
        const files = ["a.bin", "b.bin"].map((name) => ({
          name,
          mimeType: "application/octet-stream",
          buffer: Buffer.alloc(3_000_000)
        }))
        yield* step(() => page.locator('input[type="file"][multiple]').setInputFiles(files))
        yield* step(() => page.getByRole("button", { name: "Retry 2 failed" }).waitFor())
        const uploads = page.getByRole("region", { name: "Uploads", exact: true })
        assert.strictEqual(yield* step(() => uploads.getByText(/\d MB/).count()), 2)
        assert.strictEqual(
          yield* step(() => uploads.getByText("Delete files, or raise the limit").count()),
          1
        )
        assert.deepStrictEqual(yield* violationsOf(page), [])
        yield* assertClean(opened)
      }).pipe(Effect.scoped)
    )

    it.effect("an archive is unpacked into a folder", () =>
      Effect.gen(function* () {
        const { api, id } = yield* prepared
        const bytes = zip([{ name: "maps/arena.yml", content: "arena: 1\n" }])
        yield* Effect.promise(() =>
          fetch(`${api.url}${contentOf(id, "/plugins/arena.zip")}`, {
            method: "PUT",
            body: new Uint8Array(bytes),
            headers: { authorization: `Bearer ${api.key}` }
          })
        )
        const { page } = yield* openPage(yield* browser, api, filesPage(id, "/plugins/"))
        yield* select(page, "arena.zip")
        yield* step(() => page.getByRole("button", { name: "Unpack…" }).click())
        assert.deepStrictEqual(yield* violationsOf(page), [])
        const dialog = page.getByRole("dialog")
        yield* step(() => dialog.getByLabel("To folder").fill("/plugins/new/"))
        yield* step(() => dialog.getByRole("button", { name: "Unpack", exact: true }).click())
        yield* step(() => link(page, "new").waitFor())
        assert.strictEqual(yield* textOf(api, id, "/plugins/new/maps/arena.yml"), "arena: 1\n")
      }).pipe(Effect.scoped)
    )

    it.effect("a pack over a file that exists is refused, and replaces it once that is chosen", () =>
      Effect.gen(function* () {
        const { api, id } = yield* prepared
        for (const name of ["packed.txt", "pack.zip"]) {
          yield* expectStatus(api, 201, "PUT", contentOf(id, `/plugins/${name}`), { raw: "as it was" })
        }
        const { page } = yield* openPage(yield* browser, api, filesPage(id, "/plugins/"))
        yield* select(page, "packed.txt")
        yield* step(() => page.getByRole("button", { name: "Pack…" }).click())
        const dialog = page.getByRole("dialog")
        yield* step(() => dialog.getByLabel("Archive", { exact: true }).fill("pack.zip"))
        yield* step(() => dialog.getByRole("button", { name: "Pack", exact: true }).click())
        yield* step(() => dialog.getByText(/pack\.zip.*exists/).waitFor())
        assert.strictEqual(yield* textOf(api, id, "/plugins/pack.zip"), "as it was")
        yield* step(() => dialog.getByLabel("Replace the archive if it exists").check())
        assert.deepStrictEqual(yield* violationsOf(page), [])
        yield* step(() => dialog.getByRole("button", { name: "Pack", exact: true }).click())
        yield* step(() => page.getByText("Packed: pack.zip").waitFor())
        assert.match(yield* textOf(api, id, "/plugins/pack.zip"), /^PK.*packed\.txt/s)
      }).pipe(Effect.scoped)
    )
  })
})
