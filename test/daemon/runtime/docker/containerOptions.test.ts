import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import {
  type ContainerPlan,
  type ContainerRules,
  containerOptions,
  droppedLimits,
  insidePath,
  limitOptions,
  portOptions
} from "../../../../src/daemon/runtime/docker/containerOptions.ts"

const MIB = 1024 * 1024
const rules: ContainerRules = {
  node: "n1",
  user: { uid: 988, gid: 989 },
  env: { LANG: "C.UTF-8" }
}
const plan: ContainerPlan = {
  name: "srv_1",
  run: "0123456789abcdef",
  image: "example/java:21",
  argv: ["java", "-jar", "server.jar"],
  env: { MOTD: "a=b" },
  limits: {},
  home: "/data/servers/srv_1/files",
  network: "servers",
  keepOutput: true
}

describe("Docker runtime: options of a container", () => {
  it("limits are in the engine's units; an absent limit is not set", () => {
    assert.deepStrictEqual(limitOptions({}), {})
    assert.deepStrictEqual(
      limitOptions({ memory_limit: 512, swap: 128, cpu_limit: 150, threads: "0-1", io_weight: 250 }),
      {
        Memory: 512 * MIB,
        MemorySwap: 640 * MIB,
        CpuPeriod: 100_000,
        CpuQuota: 150_000,
        CpusetCpus: "0-1",
        BlkioWeight: 250
      }
    )
    assert.deepStrictEqual(limitOptions({ memory_limit: 512, swap: -1 }).MemorySwap, -1)
    assert.deepStrictEqual(limitOptions({ memory_limit: 512, swap: 0 }).MemorySwap, 512 * MIB)
    // Without `swap`, swap is not allowed in addition to the memory limit.
    assert.deepStrictEqual(limitOptions({ memory_limit: 512 }).MemorySwap, 512 * MIB)
    assert.deepStrictEqual(limitOptions({ memory_limit: 1e-9 }).Memory, MIB)
    assert.deepStrictEqual(limitOptions({ cpu_limit: 0, threads: "", memory_limit: 0 }), {})
  })

  it("the OOM killer is disabled only if there is a memory limit", () => {
    assert.isTrue(limitOptions({ memory_limit: 64, oom_disabled: true }).OomKillDisable)
    assert.isUndefined(limitOptions({ oom_disabled: true }).OomKillDisable)
    assert.isUndefined(limitOptions({ memory_limit: 64, oom_disabled: false }).OomKillDisable)
  })

  it("limits that the engine ignored are named", () => {
    assert.deepStrictEqual(droppedLimits({ BlkioWeight: 10, Memory: 1 }, { BlkioWeight: 0, Memory: 1 }), [
      "io_weight"
    ])
    assert.deepStrictEqual(droppedLimits({}, { BlkioWeight: 0 }), [])
  })

  it("every allocated port is published for TCP and UDP on its own address, and no other", () => {
    const port = fc.integer({ min: 1, max: 65535 })
    const mappings = fc.dictionary(fc.ipV4(), fc.uniqueArray(port, { maxLength: 4 }), { maxKeys: 3 })
    fc.assert(
      fc.property(mappings, (given) => {
        const { ExposedPorts, PortBindings } = portOptions({
          force_outgoing_ip: false,
          alias: "",
          default: { ip: "127.0.0.1", port: 1 },
          mappings: given
        })
        const published = Object.entries(PortBindings).flatMap(([name, bindings]) =>
          bindings.map(({ HostIp, HostPort }) => `${HostIp} ${HostPort} ${name}`)
        )
        const asked = Object.entries(given).flatMap(([ip, ports]) =>
          ports.flatMap((value) => ["tcp", "udp"].map((kind) => `${ip} ${value} ${value}/${kind}`))
        )
        assert.deepStrictEqual(published.toSorted(), asked.toSorted())
        assert.sameMembers(Object.keys(ExposedPorts), Object.keys(PortBindings))
      })
    )
  })

  it("a container has a read-only root, no capabilities, no new privileges, its own user and labels", () => {
    const { HostConfig, ...options } = containerOptions(plan, rules)
    assert.deepInclude(HostConfig, {
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges:true"],
      Privileged: false,
      PidsLimit: 4096,
      Init: true,
      RestartPolicy: { Name: "no" }
    })
    assert.deepStrictEqual(HostConfig?.Mounts, [
      { Type: "bind", Source: "/data/servers/srv_1/files", Target: "/home/container", ReadOnly: false }
    ])
    assert.strictEqual(options.User, "988:989")
    assert.deepStrictEqual(options.Labels, {
      "muster.node": "n1",
      "muster.server": "srv_1",
      "muster.run": "0123456789abcdef"
    })
  })

  it("the invocation replaces entrypoint and command of the image; the environment is the server's", () => {
    const options = containerOptions(plan, rules)
    assert.deepStrictEqual([options.Entrypoint, options.Cmd], [["java"], ["-jar", "server.jar"]])
    assert.sameMembers(options.Env ?? [], ["LANG=C.UTF-8", "HOME=/home/container", "TMPDIR=/tmp", "MOTD=a=b"])
  })

  it("a job's paths are translated to the container; similar words are unchanged", () => {
    const inside = (word: string) => insidePath(word, "/b/aside/base", "/b/aside")
    assert.strictEqual(inside("/b/aside/base"), "/home/container")
    assert.strictEqual(inside("/b/aside/base/x"), "/home/container/x")
    assert.strictEqual(inside("/b/aside/script"), "/mnt/install/script")
    assert.strictEqual(inside("/b/aside-not"), "/b/aside-not")
    assert.strictEqual(inside("-x=/b/aside"), "-x=/b/aside")
  })
})
