/**
 * Networks in namespaces of this machine: one namespace for the control plane, with a bridge, and one for each node,
 * whose link can be cut. The network of the machine is not changed.
 */
import { execFile, execFileSync, spawn } from "node:child_process"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { createServer, type Server } from "node:net"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { insideOf, ServiceFailed } from "./Service.ts"

const FOLDER = "/run/netns"
const PREFIX = "muster-test"
const ip = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].find(existsSync)

/** The reason why no namespace can be made; undefined if one can. */
export const missingNetworks: string | undefined =
  process.getuid?.() !== 0
    ? "only root can make network namespaces"
    : ip === undefined
      ? "iproute2 is not installed (apt-get install iproute2)"
      : undefined

/** Tests run if namespaces can be made; in CI this is required. */
export const withNetworks = missingNetworks === undefined || process.env.CI !== undefined
/** Appended to the titles of tests that require namespaces. */
export const networksNote =
  missingNetworks === undefined ? "" : ` (needs network namespaces: ${missingNetworks})`

export interface NodeNetwork {
  /** The name of the network namespace. */
  readonly namespace: string
  readonly address: string
  /** Cuts the link: packets are lost without an error. */
  readonly cut: Effect.Effect<void, ServiceFailed>
  readonly heal: Effect.Effect<void, ServiceFailed>
}

export interface Network {
  readonly namespace: string
  /** The address of the control plane. */
  readonly address: string
  readonly nodes: ReadonlyArray<NodeNetwork>
}

const run = (...args: ReadonlyArray<string>): Effect.Effect<void, ServiceFailed> =>
  Effect.callback((resume) => {
    execFile(ip ?? "ip", args, (error, _, stderr) =>
      resume(
        error === null
          ? Effect.void
          : Effect.fail(new ServiceFailed({ message: `ip ${args.join(" ")}: ${stderr || error.message}` }))
      )
    )
  })

/** The start time of a process in ticks since boot, which with the pid identifies it. */
const beginOf = (pid: number | string): string => {
  try {
    return /\) (?:\S+ ){19}(\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1] ?? ""
  } catch {
    return "" // it has ended
  }
}

const nameOf = (serial: number, what: string) =>
  `${PREFIX}-${process.pid}-${beginOf(process.pid)}-${serial}-${what}`

/** Kills the processes in a namespace and removes it. */
const removeNamespace = (name: string) =>
  Effect.sync(() => {
    const pids = execFileSync(ip ?? "ip", ["netns", "pids", name], { encoding: "utf8" })
    for (const pid of pids.split("\n").filter((line) => line !== "")) {
      try {
        process.kill(Number(pid), "SIGKILL")
      } catch {
        // it has ended meanwhile
      }
    }
    execFileSync(ip ?? "ip", ["netns", "delete", name])
  }).pipe(Effect.ignore)

/** Removes the namespaces of a killed test run. */
const removeLeftovers = Effect.suspend(() => {
  const names = existsSync(FOLDER) ? readdirSync(FOLDER) : []
  const ended = names.filter((name) => {
    const [, pid = "", begin] = new RegExp(`^${PREFIX}-(\\d+)-(\\d+)-`).exec(name) ?? []
    return pid !== "" && beginOf(pid) !== begin
  })
  return Effect.forEach(ended, removeNamespace, { discard: true })
})

const namespace = (name: string) =>
  Effect.acquireRelease(run("netns", "add", name), () => removeNamespace(name)).pipe(
    Effect.andThen(run("-n", name, "link", "set", "lo", "up")),
    Effect.as(name)
  )

let serial = 0

/** Makes the network of a control plane and `count` nodes; the scope kills its processes and removes it. */
export const makeNetwork = (count: number): Effect.Effect<Network, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    yield* removeLeftovers
    serial += 1
    const control = yield* namespace(nameOf(serial, "control"))
    const address = "10.99.0.1"
    yield* run("-n", control, "link", "add", "bridge", "type", "bridge")
    yield* run("-n", control, "address", "add", `${address}/24`, "dev", "bridge")
    yield* run("-n", control, "link", "set", "bridge", "up")
    const nodes = yield* Effect.forEach(
      Array.from({ length: count }, (_, index) => index + 1),
      Effect.fnUntraced(function* (index) {
        const name = yield* namespace(nameOf(serial, `node${index}`))
        const cable = `node${index}`
        const own = `10.99.0.${10 + index}`
        yield* run("-n", control, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        yield* run("-n", control, "link", "set", cable, "master", "bridge", "up")
        yield* run("-n", name, "address", "add", `${own}/24`, "dev", "eth0")
        yield* run("-n", name, "link", "set", "eth0", "up")
        return {
          namespace: name,
          address: own,
          cut: run("-n", control, "link", "set", cable, "down"),
          heal: run("-n", control, "link", "set", cable, "up")
        }
      })
    )
    return { namespace: control, address, nodes }
  })

/** Opens a port on 127.0.0.1 of this machine, and relays its connections to `host` and `port` inside a namespace. */
export const wayInto = (
  name: string,
  host: string,
  port: number
): Effect.Effect<string, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const server = yield* Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        const listening: Server = createServer({ pauseOnConnect: true }).listen(0, "127.0.0.1", () =>
          resume(Effect.succeed(listening))
        )
      }),
      (listening) => Effect.sync(() => listening.close())
    )
    const program = join(import.meta.dirname, "netnsRelay.ts")
    const [command, ...args] = insideOf(name, [process.execPath, program, host, String(port)])
    const relay = yield* Effect.acquireRelease(
      Effect.sync(() => spawn(command, args, { stdio: ["ignore", "ignore", "inherit", "ipc"] })),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
    yield* Effect.callback<void, ServiceFailed>((resume) => {
      relay.once("error", (error) => resume(Effect.fail(new ServiceFailed({ message: String(error) }))))
      relay.once("message", () => resume(Effect.void))
      relay.send("listen", server)
    })
    const address = server.address()
    // From here on only the child accepts.
    server.close()
    return yield* typeof address === "object" && address !== null
      ? Effect.succeed(`http://127.0.0.1:${address.port}`)
      : Effect.fail(new ServiceFailed({ message: "no port for the way into the namespace" }))
  })
