/**
 * The plain `node:http` server that is the baseline of the service: no routes, no checks, no framework.
 * - `plain`: 200 for everything
 * - `reads <file>`: the servers in the file, one or all, serialised to JSON for each request
 * - `events`: a `GET` subscribes; a `DELETE /api/servers/<id>` writes the event to each subscriber in a loop
 * - `files <folder>`: a `GET` reads a file of the folder; a `PUT` writes one, and is answered once it is on disk
 */
import { createReadStream, createWriteStream, readFileSync, statSync } from "node:fs"
import { createServer, type RequestListener, type ServerResponse } from "node:http"
import { join } from "node:path"
import { pipeline } from "node:stream"

const [, , mode = "plain", file = ""] = process.argv

const send = (response: ServerResponse, value: unknown) => {
  const body = JSON.stringify(value)
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) })
  response.end(body)
}

const plain: RequestListener = (_request, response) => send(response, { status: "ok" })

const reads = (): RequestListener => {
  const servers: ReadonlyArray<{ readonly id: string }> = JSON.parse(readFileSync(file, "utf8"))
  const byId = new Map(servers.map((server) => [server.id, server]))
  const prefix = "/api/servers/"
  return ({ url = "" }, response) =>
    send(response, url.startsWith(prefix) ? byId.get(url.slice(prefix.length)) : servers)
}

const events = (): RequestListener => {
  const subscribers = new Set<ServerResponse>()
  return ({ method, url = "" }, response) => {
    if (method === "DELETE") {
      const server_id = url.slice("/api/servers/".length, url.indexOf("?"))
      const data = JSON.stringify({ Topic: "deleted", Data: { server_id, payload: null } })
      const event = Buffer.from(`event: deleted\ndata: ${data}\n\n`)
      for (const subscriber of subscribers) subscriber.write(event)
      return send(response, null)
    }
    subscribers.add(response)
    response.once("close", () => subscribers.delete(response))
    response.writeHead(200, { "content-type": "text/event-stream" })
    response.write(": connected\n\n")
  }
}

const files: RequestListener = (request, response) => {
  const path = join(file, request.url ?? "")
  const ended = (error: unknown) => (error instanceof Error ? response.destroy() : response.end())
  if (request.method === "PUT") return pipeline(request, createWriteStream(path, { flush: true }), ended)
  response.writeHead(200, {
    "content-type": "application/octet-stream",
    "content-length": statSync(path).size
  })
  pipeline(createReadStream(path), response, () => {})
}

const listeners: Readonly<Record<string, () => RequestListener>> = {
  plain: () => plain,
  reads,
  events,
  files: () => files
}
const listener = (listeners[mode] ?? listeners.plain)?.()
const server = createServer(listener)
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  const address = server.address()
  if (typeof address === "object") console.log(`listens on http://127.0.0.1:${address?.port}`)
})
