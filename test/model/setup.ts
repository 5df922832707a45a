/** The parts of a run: a database, replicas, nodes, and subscribers at each replica. */
import { Effect } from "effect"
import { subscriber } from "../support/balancer.ts"
import { definitions, writeFiles } from "../support/definitions.ts"
import { postgresFaults, restartable, tcpProxy, wallClock } from "../support/faults/index.ts"
import { nodeIs } from "../support/nodes.ts"
import { freePorts } from "../support/ports.ts"
import { startPostgres } from "../support/postgres.ts"
import { seeded } from "../support/random.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { adminKey, ended, type Service } from "../support/Service.ts"
import { type MessageFaults, makeSimulatedNode } from "../support/SimulatedNode.ts"
import { arrivals } from "./arrivals.ts"
import { blueprintFiles, files } from "./definitions.ts"
import { KEEP_SECONDS, logLevel, REPLICAS, seed } from "./settings.ts"

export const nodeIds = ["n0", "n1", "n2", "n3"] as const
/** Ports and memory of one node: few enough to run out. */
export const PORTS = 28
export const NODE_MEMORY = 4 * 1024 ** 3

/** Timeouts that faults exceed: a node is lost, and given up. */
const settings = {
  MUSTER_OVERCOMMIT_MEMORY: "1",
  MUSTER_NODE_HEARTBEAT_TIMEOUT: "3",
  MUSTER_NODE_LOST_AFTER: "9",
  MUSTER_KEEP_DELETED: `${KEEP_SECONDS}s`,
  MUSTER_DATABASE_TIMEOUT: "1000",
  MUSTER_LOG_LEVEL: logLevel
}

/** The replica whose wall clock is set at times; without libfaketime it never is. */
export const REPLICA_WITH_CLOCK = 1

/** Probabilities of faults of a node's messages. */
export const messageFaults = { requestLost: 8, responseLost: 8, repeated: 15, reordered: 25, delay: 40 }
const noMessageFaults = { requestLost: 0, responseLost: 0, repeated: 0, reordered: 0, delay: 0 }

/** A replica that restarts at its address, with its own connections to the database and its own wall clock. */
const makeReplica = Effect.fnUntraced(function* (
  set: Effect.Success<ReturnType<typeof replicaSet>>,
  index: number,
  port: number,
  databasePort: number
) {
  const line = yield* tcpProxy(databasePort)
  const boots: Array<Service> = []
  const clock = yield* wallClock
  const start = set.start({
    // Reading such a clock is slow, so only one replica has it.
    ...(index === REPLICA_WITH_CLOCK ? clock.env : {}),
    MUSTER_PORT: String(port),
    MUSTER_DATABASE_URL: line.through(set.url)
  })
  const runner = yield* restartable(
    `replica ${index}`,
    Effect.tap(start, (service) => Effect.sync(() => boots.push(service)))
  )
  const terminate = Effect.suspend(() => {
    const { process } = runner.latest()
    process.kill("SIGTERM")
    return Effect.as(ended(process), process)
  })
  /** Its output, boot by boot. */
  const log = () => boots.map(({ output }, number) => `--- life ${number}\n${output()}`).join("")
  return { index, url: `http://127.0.0.1:${port}`, clock, runner, line, log, terminate }
})

export type Replica = Effect.Success<ReturnType<typeof makeReplica>>

const makeNode = Effect.fnUntraced(function* (
  index: number,
  id: string,
  key: string,
  control: ReadonlyArray<string>
) {
  const own: { -readonly [K in keyof MessageFaults]: MessageFaults[K] } = { ...noMessageFaults }
  const first = 30_000 + index * PORTS
  const node = yield* makeSimulatedNode({
    id,
    key,
    control,
    ports: `${first}-${first + PORTS - 1}`,
    heartbeat: "500 millis",
    random: seeded(seed + 1_000 + index),
    messageFaults: own,
    registration: { capacity: { memory_bytes: NODE_MEMORY, cpu_threads: 64, disk_bytes: 1e15 } }
  })
  let isThere = true
  yield* arrivals({ node, key, control, isThere: () => isThere })
  return {
    ...node,
    index,
    setThere: (there: boolean) => {
      isThere = there
    },
    beginMessageFaults: Effect.sync(() => void Object.assign(own, messageFaults)),
    endMessageFaults: Effect.sync(() => void Object.assign(own, noMessageFaults)),
    /** Removes everything on its disk, while it is killed. */
    wipe: Effect.sync(() => {
      const { arriving, backups, files, held, instances, kept, sequences, unsent } = node.brain
      for (const all of [arriving, files, held, instances, kept, sequences]) all.clear()
      backups.wiped()
      unsent.length = 0
    })
  }
})

export type ModelNode = Effect.Success<ReturnType<typeof makeNode>>

export const makeSetup = Effect.gen(function* () {
  const { blueprints, env } = yield* definitions(files)
  const server = yield* startPostgres()
  const set = yield* replicaSet({ ...env, ...settings }, server)
  const port = yield* freePorts(REPLICAS)
  const numbers = Array.from({ length: REPLICAS }, (_, index) => index)
  const replicas = yield* Effect.forEach(
    numbers,
    (index) => makeReplica(set, index, port + index, server.port),
    { concurrency: "unbounded" }
  )
  const urls = replicas.map(({ url }) => url)
  const keys = yield* Effect.forEach(nodeIds, (id) =>
    Effect.map(set.key(id, "Node"), ({ key }) => [id, key] as const)
  )
  const nodes = yield* Effect.forEach(keys, ([id, key], index) => makeNode(index, id, key, urls), {
    concurrency: "unbounded"
  })
  for (const { id } of nodes) {
    for (const { runner } of replicas) yield* nodeIs(runner.latest(), id, true)
  }
  const subscribers = yield* Effect.forEach(
    replicas.flatMap((replica) => [
      { replica, kind: "sse" } as const,
      { replica, kind: "websocket" } as const
    ]),
    ({ kind, replica }) =>
      Effect.map(
        subscriber(kind, adminKey, Effect.delay(Effect.succeed(replica.url), "50 millis")),
        ({ received }) => ({ name: `${kind} at replica ${replica.index}`, received })
      )
  )
  const { stdout } = yield* set.command(
    ...["keys", "create", "--name", "limited", "--scope", "Operator", "--label", "owner=limited"],
    ...["--allow", "power,console,commands,change,create,delete"]
  )
  /** Writes the blueprints of another generation; a reload reads them. */
  const writeBlueprints = (generation: number) => writeFiles(blueprints, blueprintFiles(generation))
  return {
    database: postgresFaults(server),
    /** A key that may do everything to servers with a label that no server has. */
    limitedKey: stdout.trim(),
    nodes,
    writeBlueprints,
    replicas,
    subscribers,
    url: set.url
  }
})

export type Setup = Effect.Success<typeof makeSetup>
