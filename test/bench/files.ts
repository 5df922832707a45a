/**
 * Transfers of one large file of a server, on the embedded node: over HTTP and tus beside `cat` and a plain `node:http`
 * server, and over SFTP beside OpenSSH's own server, with the same clients. On a remote node: the memory of both processes.
 * `MUSTER_BENCH_MIB` is the size of the file. With `MUSTER_BENCH_ONCE`, the service alone sends and receives it once over
 * HTTP and SFTP.
 */
import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import { createReadStream, createWriteStream, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Writable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { Effect } from "effect"
import { connectedNode } from "../support/nodes.ts"
import { type Service, startService } from "../support/Service.ts"
import { installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, cpuMicros, median, print, residentMiB, startBare } from "./harness.ts"
import { type SftpTarget, startSshServer } from "./sshServer.ts"
import { steadyDuring } from "./steady.ts"
import { longestTurn } from "./turnProbe.ts"

const MIB = 2 ** 20
const SIZE = Number(process.env.MUSTER_BENCH_MIB ?? 10 * 1024)
/** A large file takes long, and its figures vary little. */
const ROUNDS = SIZE > 2048 ? 1 : 3
/** Seconds of a transfer beside which requests are timed. */
const SECONDS = 10
const READS = { every: 5, connections: 32 }

const bench = "files"

const run = (program: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.callback<void, BenchFailed>((resume) => {
    const child = execFile(program, args, { env: { ...process.env, ...env } }, (error, _, stderr) =>
      resume(
        error === null
          ? Effect.void
          : Effect.fail(new BenchFailed({ message: `${program}: ${stderr || error.message}` }))
      )
    )
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** Writes a file of pieces that do not repeat within 256 MiB. */
const makeFile = (path: string) =>
  Effect.promise(() => {
    const seed = Buffer.allocUnsafe(MIB)
    for (let at = 0; at < MIB; at += 4) seed.writeUInt32LE((at * 2_654_435_761) >>> 0, at)
    const pieces = function* () {
      for (let n = 0; n < SIZE; n++) {
        seed.writeUInt32LE(n, 0)
        yield Buffer.from(seed)
      }
    }
    return pipeline(pieces, createWriteStream(path))
  })

const sha256 = (path: string) =>
  Effect.promise(() => {
    const hash = createHash("sha256")
    const counted = new Writable({
      write: (chunk: Buffer, _, done) => {
        hash.update(chunk)
        done()
      }
    })
    return pipeline(createReadStream(path, { highWaterMark: MIB }), counted).then(() => hash.digest("hex"))
  })

interface Way {
  readonly name: string
  readonly transfer: Effect.Effect<void, BenchFailed>
  /** The process that serves it, if it is one for all transfers. */
  readonly pid?: number
}

interface Measured {
  /** MiB in a second. */
  readonly rate: number
  /** CPU time for a GiB, in ms. */
  readonly cpu: number
  /** Memory beyond the one before, in MiB. */
  readonly memory: number
}

const peakMiB = (pid: number) =>
  Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

const measured = Effect.fnUntraced(function* ({ pid, transfer }: Way) {
  const before =
    pid === undefined ? undefined : { cpu: yield* cpuMicros(pid), memory: yield* residentMiB(pid) }
  // 5: the peak begins again.
  if (pid !== undefined) writeFileSync(`/proc/${pid}/clear_refs`, "5")
  const began = performance.now()
  yield* transfer
  const rate = (SIZE * 1000) / (performance.now() - began)
  if (pid === undefined || before === undefined) return { rate, cpu: Number.NaN, memory: Number.NaN }
  const found: Measured = {
    rate,
    cpu: ((yield* cpuMicros(pid)) - before.cpu) / 1000 / (SIZE / 1024),
    memory: peakMiB(pid) - before.memory
  }
  return found
})

/** Measures ways alternately, and prints the first one beside each of the others. */
const compared = Effect.fnUntraced(function* (what: string, first: Way, ...others: ReadonlyArray<Way>) {
  const ways = [first, ...others]
  const found = ways.map((): Array<Measured> => [])
  for (let round = 0; round < ROUNDS; round++)
    for (const [index, way] of ways.entries()) found[index]?.push(yield* measured(way))
  const of = (index: number, pick: (one: Measured) => number) => median((found[index] ?? []).map(pick))
  const figures = [
    ["rate", "MiB/s", ({ rate }: Measured) => rate],
    ["CPU time of the server for a GiB", "ms", ({ cpu }: Measured) => cpu],
    ["extra memory of the server", "MiB", ({ memory }: Measured) => memory]
  ] as const
  for (const [index, { name, pid }] of others.entries()) {
    for (const [figure, unit, pick] of figures) {
      if (pid === undefined && figure !== "rate") continue
      yield* print({
        bench,
        figure: `${what}, ${SIZE} MiB, ${figure}`,
        value: of(0, pick),
        unit,
        baseline: name,
        baseline_value: of(index + 1, pick)
      })
    }
  }
  const most = Math.max(...(found[0] ?? []).map(({ memory }) => memory))
  yield* print({
    bench,
    figure: `${what}, ${SIZE} MiB, most extra memory of the service`,
    value: most,
    unit: "MiB",
    baseline: "the goal",
    baseline_value: 64
  })
})

/** Prints the memory that a transfer takes in the service and in the daemon of a remote node. */
const memoryOfBoth = Effect.fnUntraced(function* (
  what: string,
  pids: Readonly<Record<string, number>>,
  transfer: Effect.Effect<void, BenchFailed>
) {
  const before = new Map<string, number>()
  for (const [name, pid] of Object.entries(pids)) {
    before.set(name, yield* residentMiB(pid))
    writeFileSync(`/proc/${pid}/clear_refs`, "5")
  }
  yield* transfer
  for (const [name, pid] of Object.entries(pids)) {
    yield* print({
      bench,
      figure: `${what}, ${SIZE} MiB, remote node, extra memory of the ${name}`,
      value: peakMiB(pid) - (before.get(name) ?? 0),
      unit: "MiB",
      baseline: "the goal",
      baseline_value: 64
    })
  }
})

const curl = (...args: ReadonlyArray<string>) => run("curl", ["-sS", "-f", ...args])

/** Uploads a file with tus: one request that begins it, and one with all its bytes. */
const tus = ({ key, url }: Service, id: string, file: string) =>
  Effect.gen(function* () {
    const headers = { authorization: `Bearer ${key}`, "tus-resumable": "1.0.0" }
    const metadata = `path ${Buffer.from("/sent").toString("base64")}`
    const begun = yield* Effect.promise(() =>
      fetch(`${url}/api/servers/${id}/files/uploads`, {
        method: "POST",
        headers: { ...headers, "upload-length": String(SIZE * MIB), "upload-metadata": metadata }
      })
    )
    const location = begun.headers.get("location")
    if (location === null) return yield* new BenchFailed({ message: `no upload begins: ${begun.status}` })
    const sent = { ...headers, "upload-offset": "0", "content-type": "application/offset+octet-stream" }
    const args = Object.entries(sent).flatMap(([name, value]) => ["-H", `${name}: ${value}`])
    yield* curl(...args, "-X", "PATCH", "-T", file, `${url}${location}`)
  })

const sftpOf = ({ output }: Service) => Number(/SFTP listens on [\d.]+:(\d+)/.exec(output())?.[1])

/** Runs one line of OpenSSH's client. */
const sftp = (
  folder: string,
  { at, env, options, port, user }: SftpTarget,
  line: "get" | "put",
  file: string
) =>
  Effect.gen(function* () {
    const remote = line === "get" ? "big" : "sent"
    const lines = line === "get" ? `get ${at(remote)} /dev/null` : `put ${file} ${at(remote)}`
    const batch = join(folder, `${line}-${port}`)
    writeFileSync(batch, `${lines}\n`)
    const all = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "RekeyLimit=64M", ...options]
    yield* run(
      "sftp",
      [
        ...all.flatMap((option) => ["-o", option]),
        "-q",
        "-P",
        String(port),
        "-b",
        batch,
        `${user}@127.0.0.1`
      ],
      env
    )
  })

const sftpTarget = (service: Service, folder: string, user: string): SftpTarget => {
  const ask = join(folder, "ask.sh")
  writeFileSync(ask, `#!/bin/sh\necho ${service.key}\n`, { mode: 0o700 })
  return {
    port: sftpOf(service),
    user,
    options: ["BatchMode=no"],
    env: { SSH_ASKPASS: ask, SSH_ASKPASS_REQUIRE: "force" },
    at: (name) => name
  }
}

const limits = { disk_space: Math.ceil((3 * SIZE * MIB) / 1e6) }

/** A service with a server that has the file `big`. */
const makeScene = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const service = yield* startService({
    env: {
      NODE_OPTIONS: `--max-semi-space-size=8 --import ${join(import.meta.dirname, "turnProbe.ts")}`,
      MUSTER_SFTP_PORT: "0",
      MUSTER_OVERCOMMIT_DISK: "1000",
      MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:20000-20099",
      MUSTER_EMBEDDED_RUNTIME: "process"
    }
  })
  const id = yield* installed(service, "demo", { overrides: { save: true, limits } })
  const own = join(service.dataDir, "node", "servers", id, "files")
  const plain = join(folder, "plain")
  mkdirSync(plain)
  for (const place of [own, plain]) yield* makeFile(join(place, "big"))
  return { folder, service, id, own, plain }
})

/** The memory of the service and of the daemon of a remote node, for each way to send and receive a file. */
const onRemoteNode = Effect.fnUntraced(function* (service: Service, folder: string, big: string) {
  const far = yield* connectedNode(service, "far", {
    env: { MUSTER_NODE_ALLOCATIONS: "127.0.0.1:20100-20199", MUSTER_NODE_RUNTIME: "process" }
  })
  const id = yield* installed(service, "demo", { node_id: far.id, overrides: { save: true, limits } })
  const pids = { service: service.process.pid ?? 0, daemon: far.process.pid ?? 0 }
  const auth = ["-H", `authorization: Bearer ${service.key}`]
  const content = `${service.url}/api/servers/${id}/files/content?path=/`
  const target = sftpTarget(service, folder, id)
  yield* memoryOfBoth("upload with tus", pids, tus(service, id, big))
  yield* memoryOfBoth("upload over HTTP", pids, curl(...auth, "-T", big, `${content}big`))
  yield* memoryOfBoth("download over HTTP", pids, curl(...auth, "-o", "/dev/null", `${content}big`))
  yield* memoryOfBoth("SFTP get", pids, sftp(folder, target, "get", big))
  yield* memoryOfBoth("SFTP put", pids, sftp(folder, target, "put", big))
})

/** Makes a transfer once, and prints its rate and the memory of the service. */
const once = Effect.fnUntraced(function* (what: string, pid: number, transfer: Way["transfer"]) {
  const { memory, rate } = yield* measured({ name: what, pid, transfer })
  yield* print({
    bench,
    figure: `${what}, ${SIZE} MiB once at ${Math.round(rate)} MiB/s, extra memory of the service`,
    value: memory,
    unit: "MiB",
    baseline: "the goal",
    baseline_value: 64
  })
})

export const files = Effect.gen(function* () {
  const { folder, id, own, plain, service } = yield* makeScene
  const pid = service.process.pid ?? 0
  const big = join(plain, "big")
  const auth = ["-H", `authorization: Bearer ${service.key}`]
  const content = (name: string) => `${service.url}/api/servers/${id}/files/content?path=/${name}`
  const get = curl(...auth, "-o", "/dev/null", content("big"))
  const put = curl(...auth, "-T", big, content("sent"))
  const checked = Effect.gen(function* () {
    if ((yield* sha256(join(own, "sent"))) !== (yield* sha256(big)))
      return yield* new BenchFailed({ message: "the uploaded file differs" })
  })
  const sent = Effect.gen(function* () {
    yield* checked
    for (const place of [own, plain]) rmSync(join(place, "sent"))
  })
  const target = sftpTarget(service, folder, id)
  if (process.env.MUSTER_BENCH_ONCE !== undefined) {
    yield* once("download over HTTP", pid, get)
    yield* once("upload over HTTP", pid, put)
    yield* checked
    rmSync(join(own, "sent"))
    yield* once("SFTP get", pid, sftp(folder, target, "get", big))
    yield* once("SFTP put", pid, sftp(folder, target, "put", big))
    return yield* checked
  }
  const bare = yield* startBare("files", plain)
  const http = "plain node:http"
  yield* compared(
    "download over HTTP",
    { name: "service", pid, transfer: get },
    { name: http, pid: bare.pid, transfer: curl("-o", "/dev/null", `${bare.url}/big`) },
    { name: "cat", transfer: run("sh", ["-c", `cat ${big} > /dev/null`]) }
  )
  yield* compared(
    "upload over HTTP",
    { name: "service", pid, transfer: put },
    { name: http, pid: bare.pid, transfer: curl("-T", big, `${bare.url}/sent`) },
    {
      name: "cat",
      transfer: run("sh", ["-c", `cat ${big} > ${join(folder, "copy")} && sync ${join(folder, "copy")}`])
    }
  )
  rmSync(join(folder, "copy"))
  yield* sent
  yield* compared(
    "upload with tus",
    { name: "service", pid, transfer: tus(service, id, big) },
    { name: http, pid: bare.pid, transfer: curl("-T", big, `${bare.url}/sent`) }
  )
  yield* sent
  const other = yield* startSshServer(plain)
  for (const line of ["get", "put"] as const) {
    yield* compared(
      `SFTP ${line} with new keys every 64 MiB`,
      { name: "service", pid, transfer: sftp(folder, target, line, big) },
      { name: "OpenSSH's server", transfer: sftp(folder, other, line, big) }
    )
  }
  yield* sent
  const during = <A, E, R>(work: Effect.Effect<A, E, R>) =>
    steadyDuring({ url: service.url, key: service.key, path: "/api/system", ...READS }, work)
  const full = <E>(transfer: Effect.Effect<void, E>) =>
    Effect.timeoutOption(Effect.forever(transfer), `${SECONDS} seconds`)
  const idle = yield* during(Effect.sleep(`${SECONDS} seconds`))
  for (const [name, transfer] of [
    ["a download over HTTP", get],
    ["an upload over HTTP", put],
    ["an upload with tus", tus(service, id, big)],
    ["SFTP get", sftp(folder, target, "get", big)],
    ["SFTP put", sftp(folder, target, "put", big)]
  ] as const) {
    const before = service.output().length
    const { p99 } = yield* during(full(transfer))
    yield* print({
      bench,
      figure: `p99 of GET /api/system beside ${name} at full speed, one every ${READS.every} ms`,
      value: p99,
      unit: "ms",
      baseline: "without transfers",
      baseline_value: idle.p99
    })
    yield* print({
      bench,
      figure: `CPU time of the longest turn of the event loop beside ${name}, 10 if none is longer`,
      value: longestTurn(service.output().slice(before)),
      unit: "ms",
      baseline: "the goal",
      baseline_value: 20
    })
  }
  for (const place of [own, plain]) rmSync(join(place, "sent"), { force: true })
  yield* onRemoteNode(service, folder, big)
}).pipe(Effect.scoped)
