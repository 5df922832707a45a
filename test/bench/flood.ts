/**
 * Pipelines requests without a key and discards the responses, until it is killed: `node flood.ts <url> <connections>
 * <requests of each>`.
 */
import { connect } from "node:net"

const [url = "", connections = "50", requests = "5000"] = process.argv.slice(2)
const { hostname, port } = new URL(url)
const bytes = "GET /docs HTTP/1.1\r\nHost: x\r\n\r\n".repeat(Number(requests))
let open = 0
for (let n = 0; n < Number(connections); n += 1) {
  const socket = connect(Number(port), hostname, () => {
    open += 1
    socket.write(bytes)
    if (open === Number(connections)) process.stdout.write("flooding\n")
  })
  socket.resume().on("error", () => {})
}
