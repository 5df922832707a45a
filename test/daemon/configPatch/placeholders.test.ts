import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import type { ServerSpec } from "../../../src/contract/domain/NodeMessages.ts"
import { standIn } from "../../../src/daemon/configPatch/find.ts"
import {
  contextOf,
  expand,
  expandJson,
  type PlaceholderContext,
  type PlaceholderProblem
} from "../../../src/daemon/configPatch/placeholders.ts"

const context: PlaceholderContext = {
  server_id: "srv_1",
  version: "1.21",
  ip: "10.0.0.1",
  port: 25565,
  ports: [25565, 25566],
  named: { game: 25565, query: 25566 },
  memoryMib: 2048,
  env: { MOTD: "{{server.id}}", EMPTY: "" }
}

const spec = (env: Record<string, string>, port_names?: ReadonlyArray<string>): ServerSpec => ({
  id: ServerId.make("srv_1"),
  allocations: {
    force_outgoing_ip: false,
    default: { ip: "10.0.0.1", port: 7 },
    alias: "",
    mappings: { "10.0.0.1": [5, 7, 9], "10.0.0.2": [11] }
  },
  definition: {
    blueprint_id: "b",
    software: "s",
    version: "1.21",
    image: "",
    process: { invocation: "run", stop_command: "stop", start_timeout: 1, clean_exit: "crash" },
    install_script: null,
    limits: { memory_limit: 512.5 },
    ports: 3,
    ...(port_names === undefined ? {} : { port_names }),
    configs: {},
    volumes: [],
    mounts: [],
    copy: [],
    env,
    runtimes: ["process"],
    placement: { locations: [], anti_affinity: false },
    restart: { on_crash: false, max_per_hour: 0 },
    save: false
  }
})

const environmentOf = (server: ServerSpec) => Result.map(contextOf(server), ({ env }) => env)

const unknown = (result: Result.Result<unknown, PlaceholderProblem>) => {
  const problem = Result.getOrThrow(Result.flip(result))
  return problem._tag === "UnknownPlaceholder" ? problem.placeholder : assert.fail(problem.message)
}

describe("Placeholders", () => {
  it("a placeholder is replaced by its value; white space inside the braces is allowed", () => {
    assert.deepStrictEqual(
      expand(
        "{{server.id}} {{ server.version }} {{server.build.default.ip}}:{{\tserver.build.default.port}} " +
          "{{server.build.ports.0}},{{server.build.ports.1}} -Xmx{{server.build.memory}}M [{{env.EMPTY}}]",
        context
      ),
      Result.succeed("srv_1 1.21 10.0.0.1:25565 25565,25566 -Xmx2048M []")
    )
  })

  it("a replaced value is not expanded again", () => {
    assert.deepStrictEqual(expand("{{env.MOTD}}", context), Result.succeed("{{server.id}}"))
  })

  it("an unknown placeholder is an error that names it", () => {
    for (const name of [
      "server.name",
      "server.build.ports.2",
      "server.build.ports.01",
      "server.build.ports.-1",
      "env.NONE",
      "env.constructor",
      "env.__proto__",
      ""
    ]) {
      assert.strictEqual(unknown(expand(`a {{ ${name} }} {{server.id}}`, context)), name)
    }
  })

  it("text without placeholders is unchanged", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        fc.pre(!/\{\{[^{}]*\}\}/.test(text))
        assert.deepStrictEqual(expand(text, context), Result.succeed(text))
      })
    )
  })

  it("long runs of braces and spaces take linear time", () => {
    for (const text of [
      "{".repeat(300_000),
      "{{".repeat(100_000) + " ".repeat(100_000),
      `{{${" ".repeat(300_000)}`
    ]) {
      assert.deepStrictEqual(expand(text, context), Result.succeed(text))
    }
  })

  it("in formats with types, a string of one placeholder stands in for the type of the file", () => {
    const value = {
      a: ["{{server.build.default.port}}", "p {{server.build.memory}}"],
      b: "{{server.id}}",
      c: true
    }
    assert.deepStrictEqual(
      expandJson(value, context, true),
      Result.succeed({ a: [standIn(25565), "p 2048"], b: standIn("srv_1"), c: true })
    )
    assert.deepStrictEqual(
      expandJson(value, context, false),
      Result.succeed({ a: ["25565", "p 2048"], b: "srv_1", c: true })
    )
    assert.strictEqual(unknown(expandJson({ a: [{ b: "{{nope}}" }] }, context, true)), "nope")
  })

  it("the expanded size is bounded, also for a repeated variable", () => {
    const long = { ...context, env: { A: "a".repeat(32_768) } }
    assert.isTrue(Result.isSuccess(expand("{{env.A}}".repeat(4), long)))
    const text = Result.getOrThrow(Result.flip(expand("{{env.A}}".repeat(3_000), long)))
    assert.strictEqual(text.message, "its placeholders stand for more than 131072 characters")
    const file = Array.from({ length: 33 }, () => "{{env.A}}")
    assert.isTrue(Result.isSuccess(expandJson(file.slice(1), long, false)))
    assert.isTrue(Result.isFailure(expandJson(file, long, false)))
  })

  it("keys are not expanded, whatever their name", () => {
    const value = JSON.parse('{"{{server.id}}": 1, "__proto__": "{{server.id}}"}')
    assert.strictEqual(
      JSON.stringify(Result.getOrUndefined(expandJson(value, context, false))),
      '{"{{server.id}}":1,"__proto__":"srv_1"}'
    )
  })
})

describe("Environment of a server", () => {
  it("the environment has the server's facts and its env, expanded; the facts have precedence", () => {
    assert.deepStrictEqual(
      environmentOf(spec({ MOTD: "on {{server.build.ports.1}}", SERVER_PORT: "1" })),
      Result.succeed({
        MOTD: "on 5",
        SERVER_ID: "srv_1",
        SERVER_IP: "10.0.0.1",
        SERVER_PORT: "7",
        SERVER_MEMORY: "512",
        VERSION: "1.21"
      })
    )
  })

  it("a variable with lower-case letters exists in upper case, unless that name is taken or guarded", () => {
    const given = {
      motd: "{{server.id}}",
      Mode: "a",
      MODE: "b",
      server_port: "1",
      path: "/x",
      ld_preload: "y"
    }
    const environment = Result.getOrThrow(environmentOf(spec(given)))
    assert.deepInclude(environment, { motd: "srv_1", MOTD: "srv_1", Mode: "a", MODE: "b", SERVER_PORT: "7" })
    for (const name of ["PATH", "LD_PRELOAD"]) assert.notProperty(environment, name)
  })

  it("a variable is a placeholder by its name in upper case, and in no other", () => {
    const made = Result.getOrThrow(contextOf(spec({ motd: "hi" })))
    const text = "{{SERVER_MEMORY}} {{ SERVER_PORT }} {{MOTD}} {{env.motd}}"
    assert.deepStrictEqual(expand(text, made), Result.succeed("512 7 hi hi"))
    for (const name of ["motd", "NOPE", "Motd"])
      assert.strictEqual(unknown(expand(`{{${name}}}`, made)), name)
  })

  it("each named port has a variable and a placeholder; the names are in the order of the ports", () => {
    const names = ["game", "query", "rcon_2"]
    const environment = Result.getOrThrow(
      environmentOf(
        spec(
          { Q: "{{server.build.ports.query}}", R: "{{env.SERVER_PORT_RCON_2}}", SERVER_PORT_GAME: "1" },
          names
        )
      )
    )
    assert.deepStrictEqual(
      [environment.SERVER_PORT_GAME, environment.SERVER_PORT_QUERY, environment.SERVER_PORT_RCON_2],
      ["7", "5", "9"]
    )
    assert.deepStrictEqual([environment.Q, environment.R], ["5", "9"])
    const named = Result.getOrThrow(contextOf(spec({}, names)))
    assert.deepStrictEqual(
      expandJson(["{{ server.build.ports.query }}", "{{server.build.ports.rcon_2}}/"], named, true),
      Result.succeed([standIn(5), "9/"])
    )
  })

  it("a port without that name is an unknown placeholder, whatever the name", () => {
    for (const name of ["query", "constructor", "to_string"]) {
      const placeholder = `server.build.ports.${name}`
      assert.strictEqual(unknown(environmentOf(spec({ A: `{{${placeholder}}}` }, ["game"]))), placeholder)
      assert.strictEqual(unknown(environmentOf(spec({ A: `{{${placeholder}}}` }))), placeholder)
    }
  })

  it("the environment has no MUSTER_* variable of the definition", () => {
    const environment = Result.getOrUndefined(
      environmentOf(spec({ MUSTER_NODE: "other", MUSTER_X: "", A: "1" }))
    )
    assert.deepStrictEqual(
      Object.keys(environment ?? {}).filter((name) => /^(A|MUSTER_.*)$/.test(name)),
      ["A"]
    )
  })

  it("variables that name each other are not expanded", () => {
    const environment = Result.getOrUndefined(
      environmentOf(spec({ A: "{{env.B}}", B: "{{env.A}}!", C: "{{env.VERSION}}" }))
    )
    assert.strictEqual(environment?.A, "{{env.A}}!")
    assert.strictEqual(environment?.B, "{{env.B}}!")
    assert.strictEqual(environment?.C, "1.21")
  })

  it("the total size of repeated variables is bounded", () => {
    const env = Object.fromEntries(Array.from({ length: 5 }, (_, index) => [`B${index}`, "{{env.A}}"]))
    const { message } = Result.getOrThrow(Result.flip(environmentOf(spec({ A: "a".repeat(32_768), ...env }))))
    assert.strictEqual(message, "its placeholders stand for more than 131072 characters")
  })

  it("an unknown placeholder in a variable is an error", () => {
    assert.strictEqual(unknown(environmentOf(spec({ A: "{{env.NOPE}}" }))), "env.NOPE")
  })

  it("the default port is the first port of its address; config patches see the expanded env", () => {
    const made = Result.getOrUndefined(contextOf(spec({ A: "{{server.id}}" })))
    assert.deepStrictEqual(made?.ports, [7, 5, 9])
    assert.strictEqual(made?.env.A, "srv_1")
    assert.strictEqual(made?.memoryMib, 512)
  })
})
