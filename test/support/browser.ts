/** Headless Chromium, controlled over the DevTools protocol. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { Effect, Schema, type Scope } from "effect"
import { eventually } from "./eventually.ts"
import { ServiceFailed, stopped } from "./Service.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

const find = () => {
  try {
    return execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim()
  } catch {
    return undefined
  }
}

/** The path of Debian's package `chromium`; undefined if it is not installed. */
export const chromium = find()
export const chromiumNote = chromium === undefined ? " (needs chromium: apt-get install chromium)" : ""

/** A message of the protocol: the response to a call, or an event. */
const Message = Schema.fromJsonString(
  Schema.Struct({
    id: Schema.optionalKey(Schema.Number),
    method: Schema.optionalKey(Schema.String),
    params: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown)),
    result: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
  })
)
const decodeMessage = Schema.decodeUnknownSync(Message)
const decodeTarget = Schema.decodeUnknownSync(Schema.Struct({ webSocketDebuggerUrl: Schema.String }))
const decodeSent = Schema.decodeUnknownSync(Schema.Struct({ request: Schema.Struct({ url: Schema.String }) }))
const decodeValue = Schema.decodeUnknownSync(
  Schema.Struct({ result: Schema.Struct({ value: Schema.optionalKey(Schema.Unknown) }) })
)

export interface Page {
  /** The URLs that the page has requested. */
  readonly requests: () => ReadonlyArray<string>
  /** Policy violations and script errors that the browser has reported. */
  readonly problems: () => ReadonlyArray<string>
  /** The value of an expression on the page; a promise is awaited. */
  readonly evaluate: (expression: string) => Effect.Effect<unknown>
}

const launch = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const child: ChildProcess = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        chromium ?? "chromium",
        [
          ...["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"],
          ...["--disable-background-networking", "--disable-component-update", "--window-size=1400,1000"],
          ...["--remote-debugging-port=0", `--user-data-dir=${folder}`, "about:blank"]
        ],
        { stdio: ["ignore", "ignore", "pipe"] }
      )
    ),
    stopped
  )
  let output = ""
  child.stderr?.on("data", (chunk: Buffer) => {
    output += chunk.toString()
  })
  return yield* eventually(
    Effect.sync(() => /DevTools listening on ws:\/\/([\d.:]+)\//.exec(output)?.[1]),
    (found) => found !== undefined
  )
})

/** Opens a page in a browser of its own. */
export const openPage = (url: string): Effect.Effect<Page, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const address = yield* launch
    const target = yield* Effect.tryPromise({
      try: async () =>
        decodeTarget(await (await fetch(`http://${address}/json/new`, { method: "PUT" })).json()),
      catch: (cause) => new ServiceFailed({ message: `no page: ${cause}` })
    })
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => new WebSocket(target.webSocketDebuggerUrl)),
      (it) => Effect.sync(() => it.close())
    )
    const waiting = new Map<number, (result: Record<string, unknown>) => void>()
    const requests: Array<string> = []
    const problems: Array<string> = []
    socket.addEventListener("message", ({ data }) => {
      const { id, method, params, result } = decodeMessage(data)
      if (id !== undefined) waiting.get(id)?.(result ?? {})
      const text = JSON.stringify(params)
      if (method === "Network.requestWillBeSent") requests.push(decodeSent(params).request.url)
      if (method === "Runtime.exceptionThrown") problems.push(text)
      if (method === "Audits.issueAdded" && text.includes("ContentSecurityPolicy")) problems.push(text)
      if (method === "Log.entryAdded" && text.includes('"source":"security"')) problems.push(text)
    })
    yield* Effect.callback<void>((resume) => {
      socket.addEventListener("open", () => resume(Effect.void))
    })
    let calls = 0
    const call = (method: string, params: Record<string, unknown> = {}) =>
      Effect.callback<Record<string, unknown>>((resume) => {
        const id = ++calls
        waiting.set(id, (result) => resume(Effect.succeed(result)))
        socket.send(JSON.stringify({ id, method, params }))
      })
    for (const domain of ["Network", "Log", "Runtime", "Page", "Audits"]) yield* call(`${domain}.enable`)
    yield* call("Page.navigate", { url })
    return {
      requests: () => requests,
      problems: () => problems,
      evaluate: (expression) =>
        Effect.map(
          call("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true }),
          (result) => decodeValue(result).result.value
        )
    }
  })
