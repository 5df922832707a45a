import type { Allocations } from "../../../src/domain/Allocation.ts"
import type { ServerRecord } from "../../../src/domain/Server.ts"
import type { ServerDefinition } from "../../../src/domain/ServerDefinition.ts"
import type { HostInfo } from "../../../src/domain/SystemInfo.ts"

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

export const record = (change: Partial<ServerRecord> = {}): ServerRecord => ({
  id: "srv_01ARZ3NDEKTSV4RRFFQ69G5FAV",
  blueprint_id: "survival",
  node_id: "n1",
  allocations: allocations(25565),
  definition: definition(),
  status: "offline",
  install: { phase: "ready" },
  start_pending: false,
  last_sequence: 0,
  created_at: "2026-01-01T00:00:00.000Z",
  ...change
})

export const host: HostInfo = {
  architecture: "amd64",
  cpu_threads: 4,
  memory_bytes: 1 << 30,
  kernel_version: "6.0",
  os: "Debian GNU/Linux 13",
  os_type: "linux"
}
