/** The dashboard in Chromium, with all that the browser objects to. */
import { assert } from "@effect/vitest"
import axe from "axe-core"
import { Effect, Exit } from "effect"
import { type Browser, chromium as launcher, type Page, type Request } from "playwright-core"
import { chromium } from "../support/browser.ts"
import type { Service } from "../support/Service.ts"

/** For tests with a browser and a service on a busy machine. */
export const slow = { timeout: 240_000 } as const

/** Runs a step of Playwright; a step that fails fails the test. */
export const step = <A>(run: () => Promise<A>): Effect.Effect<A> => Effect.promise(run)

export const browser = Effect.acquireRelease(
  step(() =>
    launcher.launch({
      executablePath: chromium ?? "chromium",
      args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    })
  ),
  (launched) => step(() => launched.close())
)

export interface Opened {
  readonly page: Page
  /** Violations of the policy, script errors, dialogs, and requests to other hosts. */
  readonly problems: () => ReadonlyArray<string>
}

/** Opens a page in a session of its own, signed in with a key unless it is null. */
export const openPage = Effect.fnUntraced(function* (
  launched: Browser,
  api: Pick<Service, "url" | "key">,
  path: string,
  options: { readonly key?: string | null; readonly dark?: boolean; readonly width?: number } = {}
) {
  const context = yield* Effect.acquireRelease(
    step(() =>
      launched.newContext({
        viewport: { width: options.width ?? 1300, height: 850 },
        colorScheme: options.dark === true ? "dark" : "light",
        reducedMotion: "reduce"
      })
    ),
    (opened) => step(() => opened.close())
  )
  context.setDefaultTimeout(60_000)
  const key = options.key === undefined ? api.key : options.key
  if (key !== null) {
    yield* step(() =>
      context.addInitScript(
        `sessionStorage.getItem("muster.key") ?? sessionStorage.setItem("muster.key", ${JSON.stringify(key)})`
      )
    )
  }
  yield* step(() =>
    context.addInitScript(
      `document.addEventListener("securitypolicyviolation", (event) => console.error("policy violated: " + event.violatedDirective + " " + event.blockedURI))`
    )
  )
  const page = yield* step(() => context.newPage())
  const problems: Array<string> = []
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`))
  page.on("dialog", (dialog) => {
    problems.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on("console", (message) => {
    if (/policy violated|Content Security Policy/.test(message.text())) problems.push(message.text())
  })
  const messages: Array<string> = []
  const unanswered = new Set<Request>()
  page.on("console", (message) => messages.push(message.text()))
  page.on("request", (request) => unanswered.add(request))
  page.on("requestfinished", (request) => unanswered.delete(request))
  page.on("requestfailed", (request) => {
    unanswered.delete(request)
    messages.push(`${request.url()} failed: ${request.failure()?.errorText}`)
  })
  page.on("response", (response) => {
    if (!response.ok()) messages.push(`${response.url()}: ${response.status()}`)
  })
  // For the log of a failed test.
  yield* Effect.addFinalizer((exit) =>
    Exit.isSuccess(exit)
      ? Effect.void
      : Effect.flatMap(
          step(() => page.locator("body").textContent()),
          (text) =>
            Effect.logError(`the page at ${page.url()} shows:\n${text}`, {
              unanswered: [...unanswered].map((request) => request.url()),
              messages
            })
        )
  )
  const isOwn = (url: string) => new URL(url).host === new URL(api.url).host
  page.on("request", (request) => {
    if (!isOwn(request.url())) problems.push(`request to ${request.url()}`)
    if (key !== null && request.url().includes(key)) problems.push(`the key is in ${request.url()}`)
  })
  page.on("websocket", (socket) => {
    if (!isOwn(socket.url())) problems.push(`WebSocket to ${socket.url()}`)
    if (key !== null && socket.url().includes(key)) problems.push(`the key is in ${socket.url()}`)
  })
  yield* step(() => page.goto(`${api.url}${path}`))
  return { page, problems: () => problems } satisfies Opened
})

/** Returns the serious and critical violations of accessibility rules, each with its elements. */
export const violationsOf = Effect.fnUntraced(function* (page: Page) {
  yield* step(() => page.evaluate(axe.source))
  const found: unknown = yield* step(() =>
    page.evaluate(
      `axe.run().then(({ violations }) => violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => id + ": " + nodes.map(({ target }) => target.join(" ")).join(", ")))`
    )
  )
  return found
})

/** Waits until a text is visible on the page. */
export const shows = (page: Page, text: string | RegExp) =>
  step(() => page.getByText(text).filter({ visible: true }).first().waitFor())

export const status = (page: Page, id: string, word: string) =>
  step(() => page.locator(`#row-${id} .status.is-${word}`).waitFor())

/** Asserts that the browser has objected to nothing. */
export const assertClean = ({ problems }: Opened) => Effect.sync(() => assert.deepStrictEqual(problems(), []))
