/** Sample records, definitions and registrations, with defaults for the fields that a test does not set. */

import type { Allocations, NodeAllocation } from "../../src/contract/domain/Allocation.ts"
import { NodeId, ServerId } from "../../src/contract/domain/Id.ts"
import type { Change } from "../../src/contract/domain/Journal.ts"
import type { HostInfo, SystemInfo } from "../../src/contract/domain/Node.ts"
import type { Registration } from "../../src/contract/domain/NodeMessages.ts"
import type { ServerRecord } from "../../src/contract/domain/Server.ts"
import type { ServerDefinition } from "../../src/contract/domain/ServerDefinition.ts"
import type { KeyRecord } from "../../src/controlPlane/store/repos/KeyRepo.ts"
import type { NodeRecord } from "../../src/controlPlane/store/repos/NodeRepo.ts"
import { branded, type Plain } from "./ids.ts"

export const definition = (change: Partial<ServerDefinition> = {}): ServerDefinition => ({
  blueprint_id: "survival",
  software: "paper",
  version: "1.21.11",
  image: "example/java:21",
  process: { invocation: "run", stop_command: "stop", start_timeout: 300, clean_exit: "crash" },
  install_script: null,
  limits: { memory_limit: 4096 },
  ports: 1,
  configs: {},
  volumes: [],
  mounts: [],
  copy: [],
  env: {},
  runtimes: ["process"],
  placement: { locations: [], anti_affinity: false },
  restart: { on_crash: false, max_per_hour: 5 },
  save: true,
  ...change
})

export const allocations = (...ports: ReadonlyArray<number>): Allocations => ({
  force_outgoing_ip: false,
  default: { ip: "10.0.0.1", port: ports[0] ?? 25565 },
  alias: "",
  mappings: { "10.0.0.1": [...ports] }
})

export const record = (change: Partial<Plain<ServerRecord>> = {}): ServerRecord => ({
  id: ServerId.make("srv_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
  blueprint_id: "survival",
  node_id: NodeId.make("n1"),
  allocations: allocations(25565),
  definition: definition(),
  status: "offline",
  install: { phase: "ready" },
  start_pending: false,
  last_sequence: 0,
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
  labels: {},
  ...branded<Partial<ServerRecord>>(change)
})

export const host: HostInfo = {
  architecture: "amd64",
  cpu_threads: 4,
  memory_bytes: 1 << 30,
  kernel_version: "6.0",
  os: "Debian GNU/Linux 13",
  os_type: "linux"
}

/** What a node of `registration` says about itself. */
export const systemInfo: SystemInfo = { version: "1.0.0", system: host }

const GIB = 1024 ** 3

/** One address of a node with ten ports. */
export const allocation = (fields: Partial<NodeAllocation> = {}): NodeAllocation => ({
  address: "127.0.0.1",
  alias: "",
  force_outgoing_ip: false,
  ports: "25565-25574",
  ...fields
})

/** A registration of a node of 8 GiB; its name is its id. */
export const registration = (id: string, fields: Partial<Plain<Registration>> = {}): Registration => ({
  id: NodeId.make(id),
  name: id,
  location: "eu",
  url: `http://${id}:5585`,
  version: systemInfo.version,
  boot_id: `${id}-boot`,
  allocations: [allocation()],
  capacity: { memory_bytes: 8 * GIB, cpu_threads: 4, disk_bytes: 100_000_000_000 },
  runtimes: ["process"],
  system: host,
  servers: [],
  ...branded<Partial<Registration>>(fields)
})

/** A record that uses every field; `ports` are on 10.0.0.1, the first is the default. */
export const server = (id: string, ports: ReadonlyArray<number>, node_id = "node-1"): ServerRecord => ({
  id: ServerId.make(id),
  blueprint_id: "survival",
  node_id: NodeId.make(node_id),
  allocations: {
    force_outgoing_ip: false,
    default: { ip: "10.0.0.1", port: ports[0] ?? 25565 },
    alias: "play.example.org",
    mappings: { "10.0.0.1": ports }
  },
  overrides: { save: true, limits: { memory_limit: 512.5 }, env: { MOTD: 'quote " and \u{1F600}' } },
  definition: {
    blueprint_id: "survival",
    software: "paper",
    version: "1.21.11",
    image: "",
    process: {
      invocation: "java -jar server.jar",
      stop_command: "stop",
      start_timeout: 60,
      clean_exit: "crash"
    },
    install_script: null,
    limits: { memory_limit: 512.5, threads: "0-1" },
    ports: 1,
    configs: {
      "server.properties": { parser: "properties", find: { "server-port": 25565, deep: { a: [1] } } }
    },
    volumes: [{ name: "world", source: "world", target: "world", mode: "cow" }],
    mounts: [],
    copy: [{ source: "a", target: "b" }],
    env: { A: "b" },
    runtimes: ["process"],
    placement: { locations: [], anti_affinity: false },
    restart: { on_crash: true, max_per_hour: 3 },
    save: true
  },
  status: "installing",
  install: { phase: "pending" },
  start_pending: true,
  last_sequence: 0,
  created_at: "2026-01-02T03:04:05.678Z",
  updated_at: "2026-01-02T03:04:05.678Z",
  name: "Survival \u{1F600}",
  labels: { "muster.example/team": "blue", season: "" },
  expires_at: "2027-01-02T03:04:05.678Z"
})

export const node = (id: string): NodeRecord => ({
  id: NodeId.make(id),
  name: `name of ${id}`,
  location: "fra",
  url: "http://127.0.0.1:5585",
  version: systemInfo.version,
  boot_id: "boot-1",
  token: "secret",
  allocations: [{ address: "10.0.0.1", alias: "", force_outgoing_ip: true, ports: "25565-25700" }],
  capacity: { memory_bytes: 8 * 1024 ** 4, cpu_threads: 7.5, disk_bytes: Number.MAX_SAFE_INTEGER },
  runtimes: ["docker", "process"],
  system: {
    architecture: "amd64",
    cpu_threads: 8,
    memory_bytes: 1024,
    kernel_version: "6.1",
    os: "Debian",
    os_type: "linux"
  },
  drained: false,
  last_seen_at: "2026-01-02T03:04:05.678Z",
  departed: false,
  connected: true,
  gone: null,
  embedded: false,
  unreachable: null
})

export const key = (id: string, hash = `hash of ${id}`): KeyRecord => ({
  id,
  name: "ci",
  scope: "Node",
  hash,
  created_at: "2026-01-02T03:04:05.678Z",
  expires_at: null,
  revoked_at: null
})

export const status = (server_id: string): Change => ({
  topic: "status",
  server_id: ServerId.make(server_id),
  payload: "running"
})

/** A status report in a message of a node. */
export const statusReport = (server_id: string, sequence: number, status: string) => ({
  type: "status",
  server_id,
  sequence,
  status,
  transient: false
})

/** A report of an installation in a message of a node. */
export const installReport = (server_id: string, sequence: number, install: object) => ({
  type: "install-status",
  server_id,
  sequence,
  install
})
