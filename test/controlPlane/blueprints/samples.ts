/** Software and a blueprint for the tests of resolution and of changed overrides. */
import type { Blueprint } from "../../../src/contract/domain/Blueprint.ts"
import type { Software } from "../../../src/contract/domain/Software.ts"

export const software = (id: string, more: Partial<Software> = {}): Software => ({
  id,
  name: id,
  images: { java_21: "example/java:21", java_25: "example/java:25" },
  mappings: [
    { image: "java_21", range: ">=1.20 <26" },
    { image: "java_25", range: ">=26" }
  ],
  process: { invocation: "run", stop_command: "stop", start_timeout: 300, clean_exit: "crash" },
  install_script: null,
  limits: { memory_limit: 1, swap: 1, threads: "0" },
  configs: { a: { parser: "properties", find: { x: "software", y: "software" } } },
  runtimes: ["docker"],
  ...more
})

export const softwares = new Map(
  [
    software("paper"),
    software("other", {
      images: { java_21: "other/java:21" },
      mappings: [{ image: "java_21", range: "default" }]
    }),
    software("plain", { images: {}, mappings: [], runtimes: ["process"] }),
    software("boxed", { images: {}, mappings: [], runtimes: ["docker"] }),
    software("single", { images: { only: "one/image:1" }, mappings: [] })
  ].map((one) => [one.id, one])
)

export const blueprint = (more: Partial<Blueprint> = {}): Blueprint => ({
  id: "game",
  name: "Game",
  type: "t",
  software: "paper",
  version: "1.21",
  limits: { swap: 2, cpu_limit: 2 },
  ports: 3,
  configs: { a: { parser: "properties", find: { y: "blueprint" } }, b: { parser: "yaml", find: { k: [1] } } },
  placement: { locations: ["eu"], anti_affinity: true },
  restart: { on_crash: true, max_per_hour: 7 },
  state: null,
  env_allow: [],
  save: false,
  annotations: {},
  ...more
})
