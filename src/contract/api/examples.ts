import { NodeId, ServerId } from "../domain/Id.ts"

export const serverExample = {
  id: ServerId.make("k7f3m9q2x8ab"),
  blueprint_id: "survival",
  node_name: "Node 1",
  node_id: NodeId.make("node-1"),
  allocations: {
    force_outgoing_ip: false,
    default: { ip: "203.0.113.7", port: 25565 },
    alias: "",
    mappings: { "203.0.113.7": [25565] }
  },
  overrides: { limits: { memory_limit: 4096 } }
} as const

export const nodeExample = {
  id: NodeId.make("node-1"),
  name: "Node 1",
  location: "eu-west",
  url: "https://node-1.example.com:5585",
  drained: false
} as const

export const blueprintExample = {
  metadata: { id: "survival", name: "Survival World", type: "survival" },
  server: {
    software: "paper",
    version: "1.21.11",
    image: "ghcr.io/example/java:21",
    limits: { memory_limit: 4096 }
  },
  state: null,
  save: false,
  annotations: {}
} as const

export const systemExample = {
  version: "0.2.0",
  system: {
    architecture: "amd64",
    cpu_threads: 8,
    memory_bytes: 33_554_432_000,
    kernel_version: "6.12.0",
    os: "Debian GNU/Linux 13 (trixie)",
    os_type: "linux"
  }
} as const
