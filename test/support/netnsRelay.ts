/** Runs in a namespace: accepts on a socket of another namespace that it receives, and relays into its own. */
import { connect, Server, type Socket } from "node:net"

const [host = "127.0.0.1", port = "0"] = process.argv.slice(2)

const pass = (from: Socket) => {
  const to = connect(Number(port), host)
  const end = () => {
    from.destroy()
    to.destroy()
  }
  from.on("error", end).on("close", end).pipe(to)
  to.on("error", end).on("close", end).pipe(from)
}

process.on("message", (_, server) => {
  if (!(server instanceof Server)) return
  server.on("connection", pass)
  process.send?.("accepting")
})
process.on("disconnect", () => process.exit(0))
