/** Makes the pictures of the README from a real run, with the demo servers: `node scripts/pictures.ts`. */
import { execFileSync } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect } from "effect"
import { chromium as launcher, type Page } from "playwright-core"
import { escapeHtml } from "../src/controlPlane/pages/publicHtml.ts"
import { chromium } from "../test/support/browser.ts"
import { startService } from "../test/support/Service.ts"
import { commands, create, expectStatus } from "../test/support/servers.ts"
import { temporaryFolder } from "../test/support/temporaryFolder.ts"

const folder = resolve(import.meta.dirname, "../docs/images")
const size = { width: 1280, height: 760 }

const names = [
  "survival-eu",
  "survival-us",
  "creative",
  "skyblock-1",
  "skyblock-2",
  "bedwars",
  "lobby",
  "event-night"
]

/** Files of the first server, as a game has them. */
const files = {
  "/plugins/shop/config.yml": "currency: coins\nprices:\n  stone: 2\n  diamond: 250\n",
  "/plugins/shop.jar": "jar",
  "/world/level.dat": "level",
  "/ops.json": "[]\n",
  "/server.properties": "motd=Welcome to survival\nmax-players=40\n"
}

/** The time of the figures that fill a plot; they stay until the page is loaded again. */
const WIDTH_OF_PLOT = "65 seconds"

const step = <A>(run: () => Promise<A>) => Effect.promise(run)

/** Runs a command of the checkout and returns what it prints. */
const printed = (args: ReadonlyArray<string>, env: Record<string, string>) =>
  Effect.sync(() =>
    execFileSync(process.execPath, [join(import.meta.dirname, "../src/main.ts"), ...args], {
      env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "", ...env },
      encoding: "utf8"
    })
  )

/** A window of a terminal with commands and what they print. */
const terminal = (text: string) => `<!doctype html><style>
body { margin: 0; padding: 24px; background: #e9e9e5; width: 912px; }
pre { margin: 0; padding: 18px 22px; border-radius: 10px; background: #16181c; color: #e3e3e0; font: 13px/1.55 "DejaVu Sans Mono", monospace; box-shadow: 0 8px 28px #0004; }
</style><pre>${escapeHtml(text)}</pre>`

const take = (page: Page, name: string) =>
  step(() => page.screenshot({ path: join(folder, name), animations: "disabled" }))

/** Makes a picture of uploads: one that a load of the page has ended, and two that are paused. */
const takeUploads = Effect.fnUntraced(function* (page: Page, address: string) {
  const worlds = yield* temporaryFolder
  const made = ["world.zip", "world_nether.zip", "world_the_end.zip"].map((name, index) => {
    const file = join(worlds, name)
    writeFileSync(file, Buffer.alloc((24 + 7 * index) * 2 ** 20))
    return file
  })
  const [world = "", ...others] = made
  const send = (files: ReadonlyArray<string>) =>
    step(() => page.locator('input[type="file"][multiple]').setInputFiles([...files]))
  const pauseOnceSent = Effect.fnUntraced(function* (name: string) {
    const row = page.locator(".upload-rows li", { hasText: name }).getByText(/^(?:[3-9]\d)%$/)
    yield* step(() => row.waitFor())
    yield* step(() => page.getByRole("button", { name: "Pause" }).click())
    yield* step(() => page.getByRole("button", { name: "Resume", exact: true }).waitFor())
  })
  const session = yield* step(() => page.context().newCDPSession(page))
  yield* step(() => session.send("Network.enable"))
  yield* step(() =>
    session.send("Network.emulateNetworkConditions", {
      offline: false,
      latency: 0,
      downloadThroughput: -1,
      uploadThroughput: 6 * 2 ** 20
    })
  )
  yield* step(() => page.goto(address))
  yield* step(() => page.getByRole("link", { name: "shop.jar" }).waitFor())
  yield* send([world])
  yield* pauseOnceSent("world.zip")
  yield* step(() => page.reload())
  yield* step(() => page.getByRole("button", { name: /^Choose the file to continue/ }).waitFor())
  yield* Effect.sleep(WIDTH_OF_PLOT)
  yield* send(others)
  yield* pauseOnceSent("world_nether.zip")
  yield* take(page, "uploads.png")
})

Effect.gen(function* () {
  mkdirSync(folder, { recursive: true })
  const api = yield* startService({
    env: {
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:25565-25664",
      MUSTER_NODE_NAME: "frankfurt-1",
      MUSTER_NODE_LOCATION: "eu",
      MUSTER_OVERCOMMIT_MEMORY: "4"
    }
  })
  const { json } = yield* expectStatus(api, 201, "POST", "/api/keys", {
    body: { name: "alex", scope: "AppAdmin" }
  })
  const key: string = json.key
  const ids: Array<string> = []
  for (const [index, name] of names.entries()) {
    const labels = { team: index % 2 === 0 ? "red" : "blue" }
    ids.push(yield* create(api, "demo-saved", { name, labels, start: index < 6 }))
  }
  for (const id of ids.slice(0, 6))
    yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=running&timeout=60`)
  const [first = ""] = ids
  yield* commands(api, first, "help", "say Welcome to survival", "list")
  for (const [path, text] of Object.entries(files))
    yield* api.request("PUT", `/api/servers/${first}/files/content?path=${path}`, { raw: text })
  for (const body of [{ name: "before 1.21", pinned: true }, {}, { name: "nightly", expires_in: 604_800 }])
    yield* expectStatus(api, 202, "POST", `/api/servers/${first}/backups`, {
      body,
      headers: { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
    })
  const browser = yield* Effect.acquireRelease(
    step(() =>
      launcher.launch({
        executablePath: chromium ?? "chromium",
        args: ["--headless", "--no-sandbox", "--disable-gpu"]
      })
    ),
    (launched) => step(() => launched.close())
  )
  const env = { MUSTER_URL: api.url, MUSTER_API_KEY: key }
  const commandLines = ["nodes list", "servers list", `servers logs ${names[0]}`]
  const parts: Array<string> = []
  for (const line of commandLines) parts.push(`$ muster ${line}\n${yield* printed(line.split(" "), env)}`)
  const shell = yield* step(() => browser.newPage({ viewport: { width: 960, height: 520 } }))
  yield* step(() => shell.setContent(terminal(parts.join("\n").trimEnd())))
  yield* step(() => shell.locator("body").screenshot({ path: join(folder, "terminal.png") }))
  for (const scheme of ["light", "dark"] as const) {
    const page = yield* step(() => browser.newPage({ viewport: size, colorScheme: scheme }))
    yield* step(() => page.addInitScript(`sessionStorage.setItem("muster.key", ${JSON.stringify(key)})`))
    yield* step(() => page.goto(`${api.url}/dashboard`))
    yield* step(() => page.locator(".memory").nth(5).waitFor())
    // The load of the node comes with its next heartbeat.
    yield* step(() => page.locator(".node-card").getByText("GiB of").waitFor())
    if (scheme === "light") yield* take(page, "dashboard.png")
    yield* step(() => page.goto(`${api.url}/dashboard/servers/${first}`))
    yield* step(() => page.locator(".xterm-rows").getByText("players online").waitFor())
    yield* step(() => page.locator(".plot .muted").nth(1).getByText("MiB of").waitFor())
    yield* Effect.sleep(WIDTH_OF_PLOT)
    if (scheme === "dark") yield* take(page, "console.png")
    yield* step(() => page.goto(`${api.url}/dashboard/servers/${first}#files/plugins/shop/config.yml`))
    yield* step(() => page.getByLabel("Contents of config.yml").getByText("currency").waitFor())
    if (scheme === "light") yield* take(page, "files.png")
    yield* step(() => page.goto(`${api.url}/dashboard/servers/${first}#backups`))
    yield* step(() => page.getByText("nightly").waitFor())
    if (scheme === "light") yield* take(page, "backups.png")
    if (scheme === "light") yield* takeUploads(page, `${api.url}/dashboard/servers/${first}#files/plugins/`)
  }
}).pipe(Effect.scoped, NodeRuntime.runMain)
