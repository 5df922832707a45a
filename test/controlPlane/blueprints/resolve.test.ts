import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { Blueprint } from "../../../src/contract/domain/Blueprint.ts"
import type { Overrides } from "../../../src/contract/domain/Overrides.ts"
import { resolve } from "../../../src/controlPlane/blueprints/resolve.ts"
import { blueprint, software, softwares } from "./samples.ts"

const resolved = (overrides: Overrides = {}, more: Partial<Blueprint> = {}) =>
  Result.getOrThrow(resolve(blueprint(more), overrides, softwares))

const refused = (overrides: Overrides, more: Partial<Blueprint> = {}): string => {
  const result = resolve(blueprint(more), overrides, softwares)
  return Result.isFailure(result) ? result.failure.detail : "resolved"
}

describe("spec 2.5: ports: names", () => {
  const query = "{{server.build.ports.query}}"
  const configs = { a: { find: { q: query } } }

  it("the number and the names of the ports are in the definition; without names there is only the number", () => {
    const named = resolved({ configs }, { ports: 2, port_names: ["game", "query"] })
    assert.deepStrictEqual([named.ports, named.port_names], [2, ["game", "query"]])
    assert.notProperty(resolved(), "port_names")
  })

  it("a placeholder of overrides or software whose port has no such name is refused", () => {
    const reason = `placeholder ${query} names no port of the server: its ports`
    assert.strictEqual(refused({ configs }), `${reason} have no names`)
    const named = { ports: 1, port_names: ["game"] }
    assert.strictEqual(refused({ env: { A: query } }, named), `${reason} are game`)
    const asks = software("asks", { configs: { f: { parser: "file", find: { q: query } } } })
    const result = resolve(blueprint({ software: "asks" }), {}, new Map([["asks", asks]]))
    assert.strictEqual(Result.isFailure(result) ? result.failure.detail : "", `${reason} have no names`)
  })
})

describe("spec 3.4: overrides, then the blueprint, then the software", () => {
  it("limits are merged by field", () => {
    assert.deepStrictEqual(resolved({ limits: { cpu_limit: 3, threads: "1" } }).limits, {
      memory_limit: 1,
      swap: 2,
      threads: "1",
      cpu_limit: 3
    })
  })

  it("configs are merged by file, then by key; the parser of an override has precedence", () => {
    const { configs } = resolved({
      configs: {
        a: { find: { x: "override", z: 1 } },
        "./b": { parser: "json", find: {} },
        c: { parser: "ini", find: { q: null } },
        d: { parser: "yml", find: { r: true } }
      }
    })
    assert.deepStrictEqual(configs, {
      a: { parser: "properties", find: { x: "override", y: "blueprint", z: 1 } },
      b: { parser: "json", find: { k: [1] } },
      c: { parser: "ini", find: { q: null } },
      d: { parser: "yaml", find: { r: true } }
    })
  })

  it("a config without a parser or with a path outside the instance is refused", () => {
    assert.strictEqual(
      refused({ configs: { c: { find: {} } } }),
      'overrides.configs["c"].parser is missing: neither blueprint nor software patches this file'
    )
    for (const file of [
      "../x",
      "/etc/passwd",
      "a/../../x",
      "",
      ".",
      "a\\..\\b",
      "a\u0000b",
      "constructor",
      "__proto__"
    ]) {
      assert.match(
        refused({ configs: Object.fromEntries([[file, { find: {} }]]) }),
        /^overrides\.configs/,
        file
      )
    }
  })

  it("a patch in a read-only volume or mount is refused, however the file is written", () => {
    const volumes = [
      { name: "lib", source: "s", target: "/home/container/lib", mode: "ro" as const },
      { name: "own", source: "s", target: "own", mode: "cow" as const }
    ]
    const mounts = [{ source: "/srv/a.yml", target: "conf/a.yml", mode: "ro" as const }]
    const state = { volumes, mounts, copy: [], env: {} }
    const patched = (file: string) => ({ configs: { [file]: { parser: "yaml" as const, find: { a: 1 } } } })
    assert.strictEqual(
      refused(patched("./lib//x.yml"), { state }),
      "overrides.configs: the file `lib/x.yml` lies in `/home/container/lib` of volume `lib` (ro), which is read-only: no patch can change it"
    )
    assert.match(refused(patched("conf/a.yml"), { state }), /mount `\/srv\/a\.yml` \(ro\)/)
    for (const file of ["own/x.yml", "library/x.yml", "conf/b.yml"]) {
      assert.strictEqual(refused(patched(file), { state }), "resolved", file)
    }
    // Patches of the software are not checked here; they are checked when the server starts.
    assert.strictEqual(
      refused({}, { state: { ...state, volumes: [{ name: "v", source: "s", target: "a", mode: "ro" }] } }),
      "resolved"
    )
  })

  it("keys such as `__proto__` are ordinary keys", () => {
    const { configs } = resolved({
      configs: Object.fromEntries([
        ["__proto__", { parser: "json" as const, find: Object.fromEntries([["__proto__", 1]]) }]
      ])
    })
    assert.deepStrictEqual(Object.keys(configs).sort(), ["__proto__", "a", "b"])
    assert.deepStrictEqual(Object.entries(configs).find(([file]) => file === "__proto__")?.[1].parser, "json")
  })

  it("overrides set variables that change how programs run only if the blueprint allows them", () => {
    for (const name of [
      "LD_PRELOAD",
      "LD_LIBRARY_PATH",
      "NODE_OPTIONS",
      "BASH_ENV",
      "ENV",
      "PATH",
      "PYTHONPATH",
      "PERL5OPT",
      "RUBYOPT",
      "JAVA_TOOL_OPTIONS",
      "JDK_JAVA_OPTIONS",
      "_JAVA_OPTIONS",
      "GIT_SSH_COMMAND",
      ...[
        "SHELLOPTS",
        "PS4",
        "IFS",
        "HOME",
        "TMPDIR",
        "npm_config_node_options",
        "NODE_PATH",
        "RUBYLIB",
        "LUA_INIT"
      ],
      ...[
        "CLASSPATH",
        "JAVA_OPTS",
        "DOTNET_STARTUP_HOOKS",
        "CORECLR_PROFILER_PATH",
        "MONO_PATH",
        "GCONV_PATH"
      ],
      ...[
        "GLIBC_TUNABLES",
        "PHPRC",
        "ZDOTDIR",
        "SHELL",
        "HTTP_PROXY",
        "https_proxy",
        "SSL_CERT_FILE",
        "BASHOPTS"
      ]
    ]) {
      const env = { A: "1", [name]: "x" }
      assert.match(refused({ env }), new RegExp(`^overrides\\.env\\.${name}: refused: .* how programs run$`))
      assert.match(refused({ env }, { env_allow: [`${name}X`, "A*"] }), /refused/, name)
      assert.deepStrictEqual(resolved({ env }, { env_allow: [name] }).env, env)
      assert.deepStrictEqual(resolved({ env }, { env_allow: [`${name.slice(0, 2)}*`] }).env, env)
    }
    // The operator's own value does not allow another one.
    const state = { volumes: [], mounts: [], copy: [], env: { PATH: "/bin" } }
    assert.strictEqual(resolved({}, { state }).env.PATH, "/bin")
    assert.match(refused({ env: { PATH: "/tmp" } }, { state }), /refused/)
    for (const env_allow of [[], ["M*"], ["MUSTER_NODE"]]) {
      assert.strictEqual(
        refused({ env: { MUSTER_NODE: "x" } }, { env_allow }),
        "overrides.env.MUSTER_NODE: refused: the variables MUSTER_* are the daemon's"
      )
    }
    assert.deepStrictEqual(resolved({ env: { path: "1", MUSTER: "1" } }).env, { path: "1", MUSTER: "1" })
  })

  it("the variables of the blueprint and the overrides have one limit", () => {
    const some = (prefix: string, count: number, value = "1") =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}${index}`, value]))
    const state = { volumes: [], mounts: [], copy: [], env: some("B", 200) }
    assert.strictEqual(Object.keys(resolved({ env: some("A", 56) }, { state }).env).length, 256)
    assert.match(refused({ env: some("A", 57) }, { state }), /expected at most 256 variables, found 257$/)
    assert.match(
      refused({ env: some("A", 5, "x".repeat(30_000)) }),
      /at most 131072 bytes in all, found 150010$/
    )
    assert.match(refused({ env: { ["N".repeat(129)]: "1" } }), /^overrides\.env\.N+\.\.\.: .*at most 128/)
    assert.match(refused({ env: { A: "ü".repeat(16_385) } }), /^overrides\.env\.A: .*at most 32768 bytes/)
  })

  it("env is merged; state, files, placement, ports and process are taken unchanged", () => {
    const state = {
      volumes: [{ name: "w", source: "s", target: "/w", mode: "cow" as const }],
      mounts: [{ source: "/a", target: "/b", mode: "ro" as const }],
      copy: [{ source: "a", target: "b" }],
      env: { A: "1", B: "1" }
    }
    const files = { deny: ["*.key"], volumes: "write" } as const
    const definition = resolved({ env: { B: "2", C: "3" } }, { files, state })
    assert.deepStrictEqual(definition.files, files)
    assert.notProperty(resolved({}, { state }), "files")
    assert.deepStrictEqual(definition.env, { A: "1", B: "2", C: "3" })
    assert.deepStrictEqual(definition.volumes, state.volumes)
    assert.deepStrictEqual(definition.mounts, state.mounts)
    assert.deepStrictEqual(definition.copy, state.copy)
    assert.strictEqual(definition.ports, 3)
    assert.deepStrictEqual(definition.placement, { locations: ["eu"], anti_affinity: true })
    assert.deepStrictEqual(definition.process, softwares.get("paper")?.process)
  })

  it("only a saved server restarts", () => {
    assert.isFalse(resolved().restart.on_crash)
    assert.deepStrictEqual(resolved({ save: true }).restart, { on_crash: true, max_per_hour: 7 })
    assert.isFalse(resolved({ save: false }, { save: true }).restart.on_crash)
  })
})

describe("spec 4.5: image", () => {
  it("the image is mapped from the version, or named by the blueprint: a key or a reference", () => {
    assert.strictEqual(resolved().image, "example/java:21")
    assert.strictEqual(resolved({}, { image: "java_25" }).image, "example/java:25")
    assert.strictEqual(resolved({}, { image: "ghcr.io/a/b:1" }).image, "ghcr.io/a/b:1")
    assert.strictEqual(resolved({}, { image: "constructor" }).image, "constructor")
  })

  it("overriding software or version maps it again, unless the overrides name an image", () => {
    assert.strictEqual(resolved({ version: "26.1" }, { image: "java_21" }).image, "example/java:25")
    assert.strictEqual(resolved({ version: "26.1", image: "java_21" }).image, "example/java:21")
    assert.strictEqual(resolved({ software: "other" }, { image: "java_25" }).image, "other/java:21")
    assert.strictEqual(resolved({ software: "other", image: "x/y" }).image, "x/y")
    assert.strictEqual(resolved({ software: "paper" }, { image: "java_25" }).image, "example/java:25")
  })

  it("the image is the blueprint's own if the same software maps the new version to none", () => {
    assert.strictEqual(resolved({ version: "1.8" }, { image: "java_21" }).image, "example/java:21")
  })

  it("the image is empty for software without images that runs as a process, and the only one without mappings", () => {
    assert.strictEqual(resolved({ software: "plain" }).image, "")
    assert.strictEqual(resolved({ software: "single" }).image, "one/image:1")
  })

  it("a definition without an image is refused for docker", () => {
    assert.strictEqual(refused({ version: "1.8" }), "no image of software paper maps to version 1.8")
    assert.strictEqual(refused({ version: "24w14a" }), "no image of software paper maps to version 24w14a")
    assert.strictEqual(refused({ software: "nope" }), "software is not defined: nope")
    assert.match(refused({ software: "boxed" }), /has no images and runs in containers only/)
    assert.strictEqual(resolved({ software: "boxed", image: "a/b" }).image, "a/b")
  })
})
