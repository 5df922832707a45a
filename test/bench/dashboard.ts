/**
 * The list of the dashboard in Chromium with 10,000 servers, while a simulated node changes 100 of them each second, and
 * while it scrolls. The page counts its own frames; the baseline is an empty page of the same service in the same browser.
 */
import { join } from "node:path"
import { Effect, Schedule } from "effect"
import { chromium as launcher, type Page } from "playwright-core"
import { chromium } from "../support/browser.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { alone, nodeIs, nodeKey } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { create } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, poll, print } from "./harness.ts"
import { seedServers } from "./seed.ts"

const SERVERS = 10_000
/** Servers that change: the newest, which are at the top of the list. */
const CHANGING = 200
/** Changes a second. */
const CHANGES = 100
/** Seconds of a measurement. */
const SECONDS = 8

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const step = <A>(run: () => Promise<A>): Effect.Effect<A, BenchFailed> =>
  Effect.tryPromise({ try: run, catch: (cause) => new BenchFailed({ message: String(cause) }) })

/** Frames a second, and the longest time between two frames in milliseconds. */
interface Frames {
  readonly rate: number
  readonly longest: number
}

/** Counts the frames of a page; `each` runs in every frame. */
const framesOf = (page: Page, each = "") =>
  step(() =>
    page.evaluate<Frames>(`new Promise((resolve) => {
      const began = performance.now()
      let frames = 0, last = began, longest = 0
      const frame = (now) => {
        frames++
        longest = Math.max(longest, now - last)
        last = now
        ${each}
        if (now - began < ${SECONDS * 1000}) requestAnimationFrame(frame)
        else resolve({ rate: (frames * 1000) / (now - began), longest })
      }
      requestAnimationFrame(frame)
    })`)
  )

const figure = (name: string, { longest, rate }: Frames, baseline: Frames) =>
  Effect.andThen(
    print({
      bench: "dashboard",
      figure: `frames a second, ${name}`,
      value: rate,
      unit: "1/s",
      baseline: "an empty page of the same service",
      baseline_value: baseline.rate
    }),
    print({
      bench: "dashboard",
      figure: `longest frame, ${name}`,
      value: longest,
      unit: "ms",
      baseline: "an empty page of the same service",
      baseline_value: baseline.longest
    })
  )

export const dashboard: Effect.Effect<void, { readonly message: string }> = Effect.gen(function* () {
  const dataDir = join(yield* temporaryFolder, "data")
  // Most servers are at rest on a node without a daemon; the others are on a simulated node.
  yield* seedServers(dataDir, SERVERS - CHANGING, { known: false })
  const { env } = yield* definitions(files)
  const api = yield* startService({ dataDir, env: { ...alone, ...env } })
  const { key } = yield* nodeKey(api, "changing")
  const node = yield* makeSimulatedNode({ id: "changing", key, control: [api.url], ports: "30000-30999" })
  yield* nodeIs(api, "changing", true)
  const ids = yield* Effect.forEach(Array.from({ length: CHANGING }), () => create(api, "kept"), {
    concurrency: 8
  })
  const isInstalled = Effect.sync(() =>
    ids.every((id) => node.brain.instances.get(id)?.status === "offline") && node.quiet() ? true : undefined
  )
  yield* poll("installations", isInstalled, { seconds: 120 })
  const browser = yield* Effect.acquireRelease(
    step(() =>
      launcher.launch({
        executablePath: chromium ?? "chromium",
        args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
      })
    ),
    (launched) => Effect.ignore(step(() => launched.close()))
  )
  const page = yield* step(() => browser.newPage({ viewport: { width: 1440, height: 900 } }))
  yield* step(() => page.goto(`${api.url}/favicon.ico`))
  const baseline = yield* framesOf(page)

  yield* step(() => page.goto(`${api.url}/dashboard`))
  yield* step(() => page.evaluate(`sessionStorage.setItem("muster.key", ${JSON.stringify(api.key)})`))
  yield* step(() => page.reload())
  yield* step(() => page.locator(`[role=grid][aria-rowcount="${SERVERS + 1}"]`).waitFor({ timeout: 60_000 }))

  let made = 0
  const start = performance.now()
  // A late turn makes the changes of those that it has missed; reports of many servers share a commit.
  const change = Effect.sync(() => {
    const due = ((performance.now() - start) * CHANGES) / 1000
    for (; made < due; made++) {
      const id = ids[made % ids.length]
      if (id === undefined) continue
      node.brain.move(id, node.brain.instances.get(id)?.status === "running" ? "stopping" : "running")
    }
  })
  const cursor = Effect.map(api.request("GET", "/api/servers?limit=1"), ({ headers }) =>
    Number(headers.get("x-muster-cursor"))
  )
  yield* Effect.forkScoped(Effect.repeat(change, Schedule.spaced("20 millis")))
  const before = { cursor: yield* cursor, made, at: performance.now() }
  const busy = yield* framesOf(page)
  const scroll = `document.getElementById("servers").scrollTop += 90`
  const scrolling = yield* framesOf(page, scroll)
  const stored = (yield* cursor) - before.cursor
  const seconds = (performance.now() - before.at) / 1000
  yield* print({
    bench: "dashboard",
    figure: "changes of servers stored meanwhile",
    value: stored / seconds,
    unit: "1/s",
    baseline: "changes that the simulated node makes",
    baseline_value: (made - before.made) / seconds
  })
  yield* step(() => page.locator(".connection.is-live").waitFor({ timeout: 5000 }))
  yield* figure(`${SERVERS} servers that change`, busy, baseline)
  yield* figure(`${SERVERS} servers that change, scrolling`, scrolling, baseline)
}).pipe(Effect.scoped)
