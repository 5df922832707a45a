/**
 * The baseline of `memoryHub.ts`: the same bytes to each response of a plain `node:http` server, `node plainHub.ts <events a
 * second>`.
 */
import { createServer, type ServerResponse } from "node:http"

const rate = Number(process.argv[2])
const began = performance.now()
const subscribers = new Set<ServerResponse>()
let published = 0

const event = () => {
  const payload = { reason: performance.now().toFixed(2), exit_code: 1, timestamp: "2026-01-01T00:00:00Z" }
  const data = JSON.stringify({ Topic: "crash", Data: { server_id: "srv_1", payload } })
  return `event: crash\nid: ${published}\ndata: ${data}\n\n`
}

const publish = () => {
  const due = Math.floor(((performance.now() - began) * rate) / 1000) - published
  if (due === 0) return
  published += due
  const bytes = Buffer.from(Array.from({ length: due }, event).join(""))
  for (const subscriber of subscribers) subscriber.write(bytes)
}

const server = createServer((_request, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" })
  response.write(": connected\n\n")
  response.once("close", () => subscribers.delete(response))
  subscribers.add(response)
})
server.listen(0, "127.0.0.1", () => {
  const address = server.address()
  if (typeof address === "object") console.log(`listens on http://127.0.0.1:${address?.port}`)
  setInterval(publish, 1)
})
