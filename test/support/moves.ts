/** Servers for tests of migrations. */
import { connect } from "node:net"
import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import { blueprintFile, definitions, softwareFile } from "./definitions.ts"
import { alone, connectedNode, forgetNode } from "./nodes.ts"
import { type Service, startService } from "./Service.ts"
import { expectStatus } from "./servers.ts"

/** Listens on its port, and writes each console line to a file that it prints at its start. */
const notesServer = `
const fs = require("node:fs")
const net = require("node:net")
const lines = require("node:readline").createInterface({ input: process.stdin })
const world = fs.existsSync("world/notes") ? fs.readFileSync("world/notes", "utf8").trim() : "nothing"
net.createServer((socket) => socket.end(world + "\\n")).listen(Number(process.env.SERVER_PORT), process.env.SERVER_IP, () => {
  console.log("world: " + world)
  console.log("ready")
})
lines.on("line", (line) => {
  if (line === "stop") return setTimeout(() => process.exit(0), Number(process.env.LINGER ?? 0))
  fs.mkdirSync("world", { recursive: true })
  fs.writeFileSync("world/notes", line + "\\n")
  console.log("wrote " + line)
})`

export const files = {
  software: {
    "keeper.yml": softwareFile("keeper", {
      invocation: "node keeper.js",
      files: { "keeper.js": notesServer }
    })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "keeper", {
      rest: { state: { volumes: [{ name: "worlds", source: "worlds", target: "world", mode: "cow" }] } }
    }),
    "lazy.yml": blueprintFile("lazy", "keeper", { rest: { state: { env: { LINGER: "1000" } } } }),
    "mapped.yml": blueprintFile("mapped", "keeper", {
      rest: { state: { copy: [{ source: "maps", target: "maps" }] } }
    }),
    "passing.yml": blueprintFile("passing", "keeper", { save: false }),
    "shared.yml": blueprintFile("shared", "keeper", {
      rest: { state: { volumes: [{ name: "common", source: "common", target: "common", mode: "rw" }] } }
    })
  }
}

/** A node for one test, which is removed afterwards. */
export const node = Effect.fnUntraced(function* (api: Service, id: string, port: number, env = {}) {
  yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, id)))
  return yield* connectedNode(api, id, {
    env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${port}-${port + 9}`, ...env }
  })
})

export const drain = (api: Service, id: string, body: object = { drained: true, move: true }) =>
  expectStatus(api, 200, "PATCH", `/api/nodes/${id}/drained`, { body })

export const serverOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}?include=status`), (answer) => answer.json)

export const moveOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/nodes/${id}`), (answer) => answer.json.move)

export const filesOn = (node: { readonly dataDir: string }, id: string, path: string) =>
  join(node.dataDir, "node", "servers", id, "files", path)

/** The response of the server at an address. */
export const serverResponse = (ip: string, port: number): Effect.Effect<string> =>
  Effect.callback<string>((resume) => {
    let received = ""
    const socket = connect({ host: ip, port })
    socket.setEncoding("utf8").on("data", (piece: string) => {
      received += piece
    })
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed(received.trim())))
  })

/** A control plane without an embedded node, with a heartbeat timeout of 2 s. */
export class Control extends Context.Service<Control, Service>()("test/Control") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      return yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "2" } })
    })
  )
}

export const options = { excludeTestServices: true, timeout: "60 seconds" } as const
