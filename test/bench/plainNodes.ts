/**
 * Nodes without instances over plain `node:http`, in a process of their own: `node plainNodes.ts <control URL>
 * <ports> <key>...`, one node for each key. A node installs a server as soon as it is asked to. On SIGUSR2, each node
 * reports statuses of its servers for the 5 seconds, in order for each server, and prints how many were
 * acknowledged, and in how many milliseconds.
 */
import { Agent, createServer, request } from "node:http"
import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import type { ReportBody } from "../../src/daemon/state/InstanceState.ts"
import { makeReportSender } from "../../src/daemon/uplink/uplink.ts"
import { host, systemInfo } from "../support/samples.ts"

const [control = "", ports = "", ...keys] = process.argv.slice(2)
const [firstPort = 0, lastPort = 0] = ports.split("-").map(Number)
const MEMORY = 1e15
const HEARTBEAT_MILLIS = 5_000
const REPORT_MILLIS = 5_000
const boot_id = "boot-1"
const agent = new Agent({ keepAlive: true, maxSockets: 64 })
const { hostname, port: controlPort } = new URL(control)

const post = (key: string, path: string, body: unknown): Promise<string> =>
  new Promise((resolve, reject) => {
    const text = JSON.stringify(body)
    const sent = request(
      {
        agent,
        hostname,
        port: controlPort,
        path,
        method: "POST",
        headers: {
          authorization: `Bearer ${key}`,
          "content-type": "application/json",
          "content-length": Buffer.byteLength(text)
        }
      },
      (response) => {
        let answer = ""
        response.setEncoding("utf8")
        response.on("data", (chunk: string) => {
          answer += chunk
        })
        response.once("end", () =>
          response.statusCode === 200
            ? resolve(answer)
            : reject(new Error(`${path}: ${response.statusCode} ${answer}`))
        )
      }
    )
    sent.once("error", reject)
    sent.end(text)
  })

const fail = (error: Error) => {
  console.error(error.message)
  process.exit(1)
}

const startNode = async (key: string, index: number, portsOfNode: number) => {
  const id = `plain-${index}`
  const sequences = new Map<ServerId, number>()
  // The part of the daemon that decides on messages.
  const sender = makeReportSender((reports) =>
    Effect.promise(async () => {
      const answer = await post(key, `/api/nodes/${id}/internal/events`, { boot_id, reports })
      if (JSON.parse(answer).failures.length > 0) throw new Error(answer)
      return []
    })
  )
  Effect.runPromise(sender.run).catch(fail)
  /** Reports what happened to a server, and waits until that is acknowledged. */
  const report = (server_id: ServerId, ...bodies: ReadonlyArray<ReportBody>) => {
    const before = sequences.get(server_id) ?? 0
    sequences.set(server_id, before + bodies.length)
    const reports = bodies.map((body, at) => ({ server_id, sequence: before + 1 + at, uses: 0, ...body }))
    return Effect.runPromise(sender.send(reports))
  }
  const finish = (server: ServerId) =>
    report(
      server,
      { type: "install-status", install: { phase: "ready" } },
      { type: "status", status: "offline", transient: true }
    )
  const server = createServer((incoming, response) => {
    let text = ""
    incoming.setEncoding("utf8")
    incoming.on("data", (chunk: string) => {
      text += chunk
    })
    incoming.once("end", () => {
      const created: ReadonlyArray<{ readonly id: ServerId }> =
        incoming.method !== "POST"
          ? []
          : incoming.url === "/api/servers"
            ? [JSON.parse(text)]
            : JSON.parse(text).servers
      const views = created.map(({ id }) => ({
        id,
        status: "installing",
        install: { phase: "pending" },
        unsent_reports: 1,
        defined_at: 0,
        uses: 0
      }))
      const body = JSON.stringify(
        incoming.method !== "POST"
          ? systemInfo
          : incoming.url === "/api/servers"
            ? views[0]
            : { outcomes: views.map((server) => ({ server })) }
      )
      response.writeHead(200, {
        "content-type": "application/json",
        "content-length": Buffer.byteLength(body)
      })
      response.end(body)
      for (const { id } of created) {
        if (sequences.has(id)) continue
        sequences.set(id, 0)
        finish(id).catch(fail)
      }
    })
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const address = server.address()
  const first = firstPort + index * portsOfNode
  await post(key, `/api/nodes/${id}/register`, {
    id,
    name: id,
    location: "",
    url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`,
    version: systemInfo.version,
    boot_id,
    allocations: [
      {
        address: "127.0.0.1",
        alias: "",
        force_outgoing_ip: false,
        ports: `${first}-${first + portsOfNode - 1}`
      }
    ],
    capacity: { memory_bytes: MEMORY, cpu_threads: 64, disk_bytes: MEMORY },
    runtimes: ["process"],
    system: host,
    servers: []
  })
  setInterval(() => {
    const beat = { boot_id, load: 1, memory_used_bytes: 2, disk_used_bytes: 3 }
    post(key, `/api/nodes/${id}/internal/heartbeat`, beat).catch(fail)
  }, HEARTBEAT_MILLIS).unref()
  return {
    /** Reports statuses of each server, one after another, until the deadline; returns their number. */
    reportUntil: async (deadline: number) => {
      const counts = await Promise.all(
        Array.from(sequences.keys(), async (server) => {
          let acknowledged = 0
          while (Date.now() < deadline) {
            const status = acknowledged % 2 === 0 ? "running" : "paused"
            await report(server, { type: "status", status, transient: false })
            acknowledged += 1
          }
          return acknowledged
        })
      )
      return counts.reduce((sum, count) => sum + count, 0)
    }
  }
}

const portsOfNode = Math.floor((lastPort - firstPort + 1) / keys.length)
const nodes = await Promise.all(keys.map((key, index) => startNode(key, index, portsOfNode)))
process.on("SIGUSR2", () => {
  const began = Date.now()
  Promise.all(nodes.map((node) => node.reportUntil(began + REPORT_MILLIS))).then((counts) => {
    const all = counts.reduce((sum, count) => sum + count, 0)
    console.log(`reports ${all} ${Date.now() - began}`)
  }, fail)
})
setInterval(() => {}, HEARTBEAT_MILLIS)
