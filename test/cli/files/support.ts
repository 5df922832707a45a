/** A service with the files of one server, which can be as hostile and as broken as a test needs. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { Effect } from "effect"
import { muster } from "../../support/command.ts"

const ID = "k7f3m1x9q2ab"

const listed = {
  id: ID,
  blueprint_id: "b",
  node_name: "n",
  node_id: "n",
  name: "lobby",
  allocations: {
    force_outgoing_ip: false,
    default: { ip: "127.0.0.1", port: 1 },
    alias: "",
    mappings: { "127.0.0.1": [1] }
  },
  status: "offline"
}

export interface Listed {
  readonly name: string
  readonly type?: "file" | "folder" | "link" | "other"
  readonly mode?: string
  readonly target?: string
}

export interface Fake {
  /** Entries by the path of their folder; a page has `pageSize` of them. */
  readonly folders?: Readonly<Record<string, ReadonlyArray<Listed>>>
  readonly pageSize?: number
  /** Contents by path. */
  readonly contents?: Record<string, Buffer>
  /** Bytes after which the connection of a response or of a request breaks, one for each transfer. */
  readonly breaks?: Array<number>
}

const failure = (response: ServerResponse, code: number, status: string, detail: string) => {
  response.writeHead(code, { "content-type": "application/json" })
  response.end(JSON.stringify({ code: String(code), status, detail, hint: "Do it.", request_id: "r" }))
}

const json = (response: ServerResponse, value: unknown, headers = {}) => {
  response.writeHead(200, { "content-type": "application/json", ...headers })
  response.end(JSON.stringify(value))
}

export const tagOf = (bytes: Buffer) => `"${bytes.toString("base64").slice(0, 20)}-${bytes.length}"`

const list = ({ contents = {}, folders = {}, pageSize = 1000 }: Fake, url: URL, response: ServerResponse) => {
  const path = url.searchParams.get("path") ?? "/"
  const after = url.searchParams.get("after") ?? ""
  const all = folders[path]
  if (all === undefined) {
    return path in contents
      ? failure(response, 409, "Conflict", `not a folder: ${path}`)
      : failure(response, 404, "Not Found", `no such file or folder: ${path}`)
  }
  const rest = all.slice(after === "" ? 0 : all.findIndex(({ name }) => name > after))
  const limit = Math.min(pageSize, Number(url.searchParams.get("limit") ?? pageSize))
  const page = after !== "" && all.every(({ name }) => name <= after) ? [] : rest.slice(0, limit)
  const entries = page.map(({ mode = "0644", name, target, type = "file" }) => ({
    name,
    type,
    size: contents[`${path === "/" ? "" : path}/${name}`]?.length ?? 0,
    modified_at: "2026-01-31T12:00:00.000Z",
    mode,
    ...(target === undefined ? {} : { target }),
    layer: "server",
    writable: true
  }))
  json(response, entries, page.length < rest.length ? { link: '<next>; rel="next"' } : {})
}

const read = (
  { breaks = [], contents = {} }: Fake,
  url: URL,
  request: IncomingMessage,
  response: ServerResponse
) => {
  const path = url.searchParams.get("path") ?? ""
  const bytes = contents[path]
  if (bytes === undefined) return failure(response, 404, "Not Found", `no such file or folder: ${path}`)
  const [, first] = /^bytes=(\d+)-/.exec(request.headers.range ?? "") ?? []
  const isPart = first !== undefined && request.headers["if-range"] === tagOf(bytes)
  const from = isPart ? Number(first) : 0
  const body = bytes.subarray(from)
  response.writeHead(isPart ? 206 : 200, {
    etag: tagOf(bytes),
    "content-length": body.length,
    ...(isPart ? { "content-range": `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {})
  })
  const after = breaks.shift()
  if (after === undefined) return response.end(body)
  return response.write(body.subarray(0, after), () => response.socket?.end())
}

const write = (
  { breaks = [], contents = {} }: Fake,
  url: URL,
  request: IncomingMessage,
  response: ServerResponse
) => {
  const path = url.searchParams.get("path") ?? ""
  const before = contents[path]
  const after = breaks.shift()
  if (after !== undefined) return request.once("data", () => request.socket.destroy())
  const condition = request.headers["if-match"]
  if (condition !== undefined && (before === undefined || condition !== tagOf(before)))
    return failure(response, 412, "Precondition Failed", `the file has another tag: ${path}`)
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => chunks.push(chunk))
  return request.on("end", () => {
    const bytes = Buffer.concat(chunks)
    contents[path] = bytes
    response.writeHead(before === undefined ? 201 : 204, { etag: tagOf(bytes) }).end()
  })
}

/** Serves the files; `asked` has each request as `PUT /content?path=...`, `run` runs `muster files`. */
export const fakeFiles = (fake: Fake) =>
  Effect.gen(function* () {
    const asked: Array<string> = []
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer((request, response) => {
          const url = new URL(`http://h${request.url}`)
          const route = url.pathname.replace(`/api/servers/${ID}/files`, "")
          if (url.pathname === "/api/servers") return json(response, [listed])
          asked.push(`${request.method} ${route}?${url.searchParams}`)
          if (route === "") return list(fake, url, response)
          if (route !== "/content") return json(response, { "/": { status: 200 } })
          return request.method === "PUT"
            ? write(fake, url, request, response)
            : read(fake, url, request, response)
        })
        made.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) =>
        Effect.sync(() => {
          made.closeAllConnections()
          made.close()
        })
    )
    const address = server.address()
    const port = typeof address === "object" ? address?.port : 0
    const env = { MUSTER_URL: `http://127.0.0.1:${port}`, MUSTER_API_KEY: "x" }
    return {
      asked,
      env,
      run: (args: ReadonlyArray<string>, more: Readonly<Record<string, string>> = {}) =>
        muster(["files", ...args], { ...env, ...more })
    }
  })
