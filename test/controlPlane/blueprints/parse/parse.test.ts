import { assert, describe, it } from "@effect/vitest"
import { parseFile } from "../../../../src/controlPlane/blueprints/parse/parse.ts"
import { parse, problemsOf, softwareFile } from "../support.ts"

const blueprint = (body: string) => `blueprint: { id: a }\n${body}`

const read = (text: string, folder: "blueprints" | "software" = "blueprints") => {
  const parsed = parse(text, folder)
  assert.deepStrictEqual(parsed.problems, [])
  return parsed
}

const example = `blueprint: { id: survival, name: Survival World, type: survival }
includes: [shared_plugins, default_limits]     # mixins, left to right
server:
  software: paper
  version: "1.21.11"
  image: java_21
  limits: { memory_limit: 4096, swap: 1024, io_weight: 500, cpu_limit: 200, disk_space: 5120, threads: "", oom_disabled: false }
  ports: 1
  configs:
    server.properties: { parser: properties, find: { motd: "Hello", view-distance: 15 } }
    config/paper-world-defaults.yml: { parser: yaml, find: { anticheat.anti-xray.enabled: true } }
  placement: { locations: [eu-west], anti_affinity: false }
  restart: { on_crash: false, max_per_hour: 5 }
state:
  volumes:
    - { name: world, source: worlds/survival, target: /world, mode: cow }
    - world:worlds/survival:/world:cow
  mounts: [ /srv/maps:/home/container/maps:ro ]
  copy: [ files/config.yml:plugins/config.yml ]
  env: { MOTD: "hi" }
save: false
annotations: { maintainer: ops, tags: [game] }
`

const softwareExample = `software:
  id: paper
  name: Paper
  images: { java_21: "ghcr.io/example/java:21", java_25: "ghcr.io/example/java:25" }
  mappings:
    - java_21: ">=1.20.5 <=1.21.11"
    - java_25: ">=1.21.12"
    - default: java_21
  invocation: "java -Xms128M -XX:MaxRAMPercentage=95.0 -jar server.jar"
  stop-command: "stop"
  online-signal: ")! For help, type"
  start-timeout: 300
  clean-exit: crash
  install-script: { entrypoint: bash, script: "...", skip_scripts: false, timeout: 1800,
                    warmup: true, warmup-timeout: 600, warmup-retries: 0, warmup-failure-policy: fail,
                    post-warmup-script: "rm -rf world logs", post-warmup-timeout: 120 }
  limits: { memory_limit: 4096 }
  configs: { server.properties: { parser: properties, find: { server-port: "{{server.build.default.port}}" } } }
  runtimes: [docker, process]
`

describe("spec 4.2: fields of a file", () => {
  it("the documented example is read, with shorthands expanded", () => {
    const { definition, warnings } = read(example)
    const world = { name: "world", source: "worlds/survival", target: "/world", mode: "cow" } as const
    const at = (line: number, column: number) => ({ file: "a.yml", line, column })
    assert.deepStrictEqual(warnings, [])
    assert.deepStrictEqual(definition, {
      kind: "blueprint",
      file: "a.yml",
      at: { line: 1, column: 18 },
      id: "survival",
      name: "Survival World",
      type: "survival",
      includes: [
        { id: "shared_plugins", line: 2, column: 12 },
        { id: "default_limits", line: 2, column: 28 }
      ],
      save: false,
      server: {
        software: "paper",
        version: "1.21.11",
        image: "java_21",
        limits: {
          memory_limit: 4096,
          swap: 1024,
          io_weight: 500,
          cpu_limit: 200,
          disk_space: 5120,
          threads: "",
          oom_disabled: false
        },
        ports: 1,
        configs: {
          "server.properties": {
            value: { parser: "properties", find: { motd: "Hello", "view-distance": 15 } },
            at: at(10, 5)
          },
          "config/paper-world-defaults.yml": {
            value: { parser: "yaml", find: { "anticheat.anti-xray.enabled": true } },
            at: at(11, 5)
          }
        },
        placement: { locations: ["eu-west"], anti_affinity: false },
        restart: { on_crash: false, max_per_hour: 5 }
      },
      state: {
        volumes: [
          { value: world, at: at(16, 7) },
          { value: world, at: at(17, 7) }
        ],
        mounts: [
          { value: { source: "/srv/maps", target: "/home/container/maps", mode: "ro" }, at: at(18, 13) }
        ],
        copy: [{ value: { source: "files/config.yml", target: "plugins/config.yml" }, at: at(19, 11) }],
        env: { MOTD: "hi" },
        env_allow: []
      },
      files: {},
      backup: {},
      schedules: [],
      annotations: { maintainer: "ops", tags: ["game"] }
    })
  })

  it("the documented software is read", () => {
    const { definition, warnings } = read(softwareExample, "software")
    assert.deepStrictEqual(warnings, [])
    assert.deepStrictEqual(definition?.kind === "software" && definition.software, {
      id: "paper",
      name: "Paper",
      images: { java_21: "ghcr.io/example/java:21", java_25: "ghcr.io/example/java:25" },
      mappings: [
        { image: "java_21", range: ">=1.20.5 <=1.21.11" },
        { image: "java_25", range: ">=1.21.12" },
        { image: "java_21", range: "default" }
      ],
      process: {
        invocation: "java -Xms128M -XX:MaxRAMPercentage=95.0 -jar server.jar",
        stop_command: "stop",
        online_signal: ")! For help, type",
        start_timeout: 300,
        clean_exit: "crash",
        terminal: false,
        stop_timeout: 30
      },
      install_script: {
        entrypoint: "bash",
        script: "...",
        skip_scripts: false,
        timeout: 1800,
        warmup: true,
        warmup_timeout: 600,
        warmup_retries: 0,
        warmup_failure_policy: "fail",
        post_warmup_script: "rm -rf world logs",
        post_warmup_timeout: 120
      },
      limits: { memory_limit: 4096 },
      configs: {
        "server.properties": {
          parser: "properties",
          find: { "server-port": "{{server.build.default.port}}" }
        }
      },
      runtimes: ["docker", "process"]
    })
  })

  it("the default runtime is docker with images, else process", () => {
    const plain = read(softwareFile("a"), "software").definition
    assert.deepStrictEqual(plain?.kind === "software" && plain.software, {
      id: "a",
      name: "a",
      images: {},
      mappings: [],
      process: {
        invocation: "run",
        stop_command: "^SIGTERM",
        start_timeout: 300,
        clean_exit: "crash",
        terminal: false,
        stop_timeout: 30
      },
      install_script: null,
      limits: {},
      configs: {},
      runtimes: ["process"]
    })
    const imaged = read(softwareFile("a", "  images: { x: y }\n"), "software").definition
    assert.deepStrictEqual(imaged?.kind === "software" && imaged.software.runtimes, ["docker"])
  })

  it("the environment is bounded, MUSTER_* is refused, and env_allow is read", () => {
    const env = (variables: Readonly<Record<string, string>>) =>
      problemsOf(blueprint(`state:\n  env: ${JSON.stringify(variables)}`))
    const many = (count: number, value = "1") =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`V${index}`, value]))
    assert.deepStrictEqual(env(many(256)), [])
    assert.deepStrictEqual(env(many(257)), ["3:8: expected at most 256 variables, found 257"])
    assert.deepStrictEqual(env({ ["N".repeat(128)]: "1", LD_PRELOAD: "x", PATH: "/bin" }), [])
    assert.match(env({ ["N".repeat(129)]: "1" }).join(), /^3:9: expected the name of an environment variable/)
    assert.deepStrictEqual(env({ A: "ü".repeat(16_384) }), [])
    assert.match(env({ A: "ü".repeat(16_385) }).join(), /^3:13: expected a value of at most 32768 bytes/)
    assert.match(env({ A: "a\0b" }).join(), /^3:13: expected a value without NUL/)
    assert.match(
      env(many(5, "x".repeat(30_000))).join(),
      /^3:8: expected at most 131072 bytes in all, found 150010$/
    )
    assert.deepStrictEqual(env({ A: "1", MUSTER_NODE: "other" }), [
      "3:17: `MUSTER_NODE`: the variables MUSTER_* are the daemon's"
    ])
    const { definition } = read(blueprint("state: { env-allow: [LD_PRELOAD, PYTHON*] }"))
    assert.deepStrictEqual(definition?.kind === "blueprint" && definition.state?.env_allow, [
      "LD_PRELOAD",
      "PYTHON*"
    ])
    assert.deepStrictEqual(problemsOf(blueprint("state: { env-allow: [MUSTER_NODE, MUSTER_*, '*', A-B] }")), [
      "2:22: `MUSTER_NODE`: the variables MUSTER_* are the daemon's",
      "2:35: `MUSTER_*`: the variables MUSTER_* are the daemon's",
      '2:45: expected the name of an environment variable, or the beginning of names and *, found the text "*"',
      '2:50: expected the name of an environment variable, or the beginning of names and *, found the text "A-B"'
    ])
  })

  it("a bare version and bare numbers of the environment keep their spelling", () => {
    const { definition } = read(
      blueprint("server: { version: 1.20 }\nstate: { env: { A: 1.50, B: yes, C: true } }")
    )
    assert.strictEqual(definition?.kind === "blueprint" && definition.server.version, "1.20")
    assert.deepStrictEqual(definition?.kind === "blueprint" && definition.state?.env, {
      A: "1.50",
      B: "yes",
      C: "true"
    })
  })

  it("`-` and `_` are equal, except in free keys", () => {
    const dashes = read(softwareExample, "software").definition
    const scores = read(
      softwareExample.replaceAll(/(stop|online|start|clean|install|post|warmup|failure)-(?=\w)/g, "$1_"),
      "software"
    ).definition
    assert.deepStrictEqual(scores, dashes)
    assert.deepStrictEqual(
      problemsOf(softwareFile("a", "  stop-command: a\n  stop_command: b\n"), "software"),
      ["5:3: the key `stop-command` is there twice"]
    )
    const env = read(blueprint("annotations: { a-b: 1, a_b: 2 }")).definition
    assert.deepStrictEqual(env?.kind === "blueprint" && env.annotations, { "a-b": 1, a_b: 2 })
  })

  it("null means absent, and `x-` keys are ignored", () => {
    const { definition } = read(
      "x-common: &common { memory_limit: 64 }\nblueprint: { id: a, x-b: 1 }\nstate:\nserver: { limits: *common }\n"
    )
    assert.strictEqual(definition?.kind === "blueprint" && definition.state, null)
    assert.deepStrictEqual(definition?.kind === "blueprint" && definition.server.limits, { memory_limit: 64 })
  })
})

describe("spec 10.4: rules of files", () => {
  const rules = (files: object) => blueprint(`files: ${JSON.stringify(files)}`)

  it("all rules are read, of blueprints and mixins; a pattern with a slash begins with one", () => {
    const patterns = [
      "*.key",
      "server.jar",
      "plugins/*/config.yml",
      "/world/**",
      "**/cache",
      "a b",
      "?x].txt"
    ]
    const files = { deny: patterns, read_only: ["x/y"], volumes: "write", mounts: "read" } as const
    const expected = {
      ...files,
      deny: ["*.key", "server.jar", "/plugins/*/config.yml", "/world/**", "/**/cache", "a b", "?x].txt"],
      read_only: ["/x/y"]
    }
    const inBlueprint = read(rules(files)).definition
    const inMixin = read(`mixin: { id: a }\nfiles: ${JSON.stringify(files)}`).definition
    assert.deepStrictEqual(inBlueprint?.kind === "blueprint" && inBlueprint.files, expected)
    assert.deepStrictEqual(inMixin?.kind === "mixin" && inMixin.files, expected)
  })

  it("a bad pattern is a problem at its place", () => {
    const patterns = [
      "",
      "/",
      "a//b",
      "../x",
      "a/./b",
      "a\\b",
      "a\tb",
      "plugins/",
      "!x",
      "*.{key,pem}",
      "[ab]"
    ]
    const lines = patterns.map((pattern) => `    - ${JSON.stringify(pattern)}\n`).join("")
    const noNames = "has an empty name, `.` or `..`"
    const special = "only *, ** and ? stand for others, and ? for this one"
    assert.deepStrictEqual(problemsOf(blueprint(`files:\n  deny:\n${lines}`)), [
      `4:7: the pattern \`\` ${noNames}`,
      `5:7: the pattern \`/\` ${noNames}`,
      `6:7: the pattern \`a//b\` ${noNames}`,
      `7:7: the pattern \`../x\` ${noNames}`,
      `8:7: the pattern \`a/./b\` ${noNames}`,
      "9:7: the pattern `a\\b` contains a backslash; write /",
      "10:7: the pattern `a b` contains control characters",
      "11:7: the pattern `plugins/` ends with /; the pattern of a folder holds for all below it",
      `12:7: the pattern \`!x\` contains \`!\`; ${special}`,
      `13:7: the pattern \`*.{key,pem}\` contains \`{\`; ${special}`,
      `14:7: the pattern \`[ab]\` contains \`[\`; ${special}`
    ])
  })

  it("patterns are bounded; other values and keys are refused", () => {
    const many = (count: number) => Array.from({ length: count }, (_, index) => `f${index}`)
    const long = "x".repeat(200)
    assert.deepStrictEqual(problemsOf(rules({ deny: many(100), read_only: many(99).concat(long) })), [])
    assert.deepStrictEqual(problemsOf(rules({ deny: many(101) })), [
      "2:16: expected at most 100 patterns, found 101"
    ])
    assert.match(problemsOf(rules({ deny: [`${long}x`] })).join(), /^2:17: .* is longer than 200 characters$/)
    assert.deepStrictEqual(
      problemsOf(blueprint("files: { deny: '*.key', volumes: rw, mounts: write, hide: [] }")),
      [
        '2:16: expected a list of patterns of paths, found the text "*.key"',
        '2:34: expected read or write, found the text "rw"',
        '2:46: expected hidden or read, found the text "write"',
        "2:53: unknown key `hide`; the keys here are deny, read_only, volumes, mounts"
      ]
    )
    assert.deepStrictEqual(problemsOf(blueprint("state: { read_only: [x] }")), [
      "2:10: unknown key `read_only`; its place is `files.read_only`"
    ])
  })
})

describe("spec 4.2: refused files", () => {
  const cases: ReadonlyArray<readonly [string, string, ReadonlyArray<string>]> = [
    [
      "an unknown key",
      "blueprint: { id: a }\nsever: {}\n",
      ["2:1: unknown key `sever`; did you mean `server`?"]
    ],
    [
      "a mistyped inner key",
      blueprint("server:\n  sofware: paper\n  limits: { memory-limt: 1, memroy: 1 }\n"),
      [
        "3:3: unknown key `sofware`; did you mean `software`?",
        "4:13: unknown key `memory-limt`; did you mean `memory_limit`?",
        "4:29: unknown key `memroy`; did you mean `memory_limit`?"
      ]
    ],
    [
      "an unknown key without a similar one",
      blueprint("zzzzzz: 1"),
      [
        "2:1: unknown key `zzzzzz`; the keys here are blueprint, includes, server, state, files, backup, schedules, save, start, annotations"
      ]
    ],
    ["no kind", "server: {}\n", ["1:1: no `blueprint:`, `mixin:` or `software:` at the top level"]],
    [
      "a mistyped kind",
      "\nbluprint: { id: a }\n",
      [
        "2:1: no `blueprint:`, `mixin:` or `software:` at the top level; unknown key `bluprint`; did you mean `blueprint`?"
      ]
    ],
    [
      "two kinds",
      "blueprint: { id: a }\nmixin: { id: b }\n",
      ["2:1: a file holds one definition; this one has `blueprint:` and `mixin:`"]
    ],
    [
      "software in the blueprints folder",
      softwareFile("a"),
      ["1:1: a `software:` file belongs in the software folder"]
    ],
    ["no id", "blueprint: { name: a }\n", ["1:12: `blueprint.id` is missing"]],
    ["an empty header", "blueprint:\n", ["1:11: `blueprint` is missing"]],
    [
      "a bad id",
      "blueprint: { id: Sur vival }\n",
      ['1:18: expected an id such as survival_1 ([a-z0-9][a-z0-9_-]{0,62}), found the text "Sur vival"']
    ],
    [
      "save in a mixin",
      "mixin: { id: a }\nsave: true\n",
      ["2:1: unknown key `save`; its place is `save` of a blueprint file"]
    ],
    [
      "text for a flag",
      blueprint("save: yes"),
      ['2:7: expected true or false, found the text "yes"; write true']
    ],
    [
      "limits out of range",
      blueprint(
        'server:\n  limits: { memory_limit: -1, swap: 1.5, io_weight: 5, threads: a, cpu_limit: "9" }'
      ),
      [
        "3:27: expected a value between 0 and 67108864, found -1",
        "3:37: expected an integer, found 1.5",
        "3:53: expected 0, or a value between 10 and 1000, found 5",
        '3:65: expected a cpuset such as "0-3,6", found the text "a"',
        '3:79: expected a number in percent of one thread, found the text "9"; write 9 without quotes'
      ]
    ],
    [
      "keys and forms of other tools",
      blueprint(`server:
  environment: { A: b }
  save: true
  limits: { ram: 4096, threads:2 }
  ports: 25565
  restart: always
  configs: { a: { parser: JSON } }
state:
  env: [A=b]
save: yes
`),
      [
        "3:3: unknown key `environment`; its place is `state.env`",
        "4:3: unknown key `save`; its place is `save` at the top level",
        "5:13: unknown key `ram`; did you mean `memory_limit`?",
        "5:24: unknown key `threads:2`; write `threads: 2`, with a space",
        "6:10: expected 1 to 16 ports, or a list of their names, found 25565; the node chooses the numbers",
        '7:12: expected a mapping, found the text "always"; the keys here are on_crash, delay, max_delay, max_per_hour, reset_after',
        '8:27: expected properties, yaml, json, toml, ini, xml or file, found the text "JSON"; did you mean json?',
        "10:8: expected a mapping, found a list; write `key: value` lines without `- `",
        '11:7: expected true or false, found the text "yes"; write true'
      ]
    ],
    [
      "limits and ports as other tools have them",
      blueprint(`server:
  memory: 2048
  cpu: 200
  disk: 1000
  ports: { game: 25565 }
`),
      [
        "3:3: unknown key `memory`; its place is `server.limits.memory_limit`",
        "4:3: unknown key `cpu`; its place is `server.limits.cpu_limit`",
        "5:3: unknown key `disk`; its place is `server.limits.disk_space`",
        "6:10: expected 1 to 16 ports, or a list of their names, found a mapping; the node chooses the numbers"
      ]
    ],
    ["a tab", blueprint("server:\n\tsoftware: x"), ["3:1: a tab indents this line; use spaces"]],
    [
      "a placeholder without quotes",
      blueprint("state: { env: { PORT: {{server.build.default.port}} } }"),
      ['2:24: a key is no text; put a placeholder in quotes: "{{...}}"']
    ],
    [
      "a colon without a space",
      blueprint('server:\n  software:paper\n  version: "1"'),
      ["3:3: this line is no `key: value`; put a space behind the colon, and align the keys"]
    ],
    [
      "a key that is indented too far",
      blueprint('server:\n  software: paper\n   version: "1"'),
      ["3:13: a mapping begins inside a value; put a text with `: ` in quotes, or align the keys"]
    ],
    [
      "a value that begins with a reserved character",
      blueprint("x-a: @home"),
      ["2:6: Plain value cannot start with reserved character @; put the value in quotes"]
    ],
    [
      "amounts in other spellings",
      blueprint(
        "server:\n  limits: { memory_limit: 4G, swap: 512Mi, disk_space: 10 GB, cpu_limit: 50% }\n  stop_timeout: 2m\n  restart: { on_crash: true, delay: 1 fortnight }"
      ),
      [
        '3:27: expected a number of MiB (4096 here), found the text "4G"',
        '3:37: expected a number of MiB (512 here), found the text "512Mi"',
        '3:56: expected a number of MB (10000 here), found the text "10 GB"',
        '3:74: expected a number in percent of one thread (50 here), found the text "50%"',
        '4:17: expected a number of seconds (120 here), found the text "2m"',
        '5:37: expected a number of seconds, found the text "1 fortnight"'
      ]
    ],
    [
      "too many ports",
      blueprint("server: { ports: 17 }"),
      ["2:18: expected a value between 1 and 16, found 17"]
    ],
    [
      "names of ports",
      blueprint("server: { ports: [game, Query, game, 1x, [a], rcon-2, game, 7, _a] }"),
      [
        '2:25: expected a name of at most 32 characters from a-z0-9_, a letter first, found the text "Query"',
        "2:32: the port `game` is there twice",
        '2:38: expected a name of at most 32 characters from a-z0-9_, a letter first, found the text "1x"',
        "2:42: expected the name of a port, found a list",
        '2:47: expected a name of at most 32 characters from a-z0-9_, a letter first, found the text "rcon-2"',
        "2:55: the port `game` is there twice",
        "2:61: expected a name of at most 32 characters from a-z0-9_, a letter first, found 7",
        '2:64: expected a name of at most 32 characters from a-z0-9_, a letter first, found the text "_a"'
      ]
    ],
    [
      "no names of ports",
      blueprint("server: { ports: [] }"),
      ["2:18: expected 1 to 16 names of ports, found 0"]
    ],
    [
      "too many names of ports",
      blueprint(`server: { ports: [${Array.from({ length: 17 }, (_, n) => `p${n}`).join(", ")}] }`),
      ["2:18: expected 1 to 16 names of ports, found 17"]
    ],
    [
      "an unknown parser",
      blueprint("server: { configs: { a: { parser: lua } } }"),
      ['2:35: expected properties, yaml, json, toml, ini, xml or file, found the text "lua"']
    ],
    [
      "a name that no variable can have",
      blueprint("state: { env: { 1a: b, OK: [x] } }"),
      [
        "2:17: expected the name of an environment variable of at most 128 characters as the key",
        "2:28: expected text, found a list"
      ]
    ],
    [
      "paths that leave their folder",
      blueprint(`server:
  configs:
    ../a: { parser: yaml }
    /etc/passwd: { parser: file }
    a/../../b: { parser: yaml }
    ./x.yml: { parser: yaml }
    x.yml: { parser: yaml }
state:
  volumes: [ "w:../../etc:/world", "w:worlds:/world/../..", "w:/abs:/world" ]
  mounts: [ "srv:/x", "/srv/../etc:/x" ]
  copy: [ "a:../b", "a:/b", "../a:b" ]
`),
      [
        "4:5: the path `../a` contains `..`",
        "5:5: the path `/etc/passwd` must be relative",
        "6:5: the path `a/../../b` contains `..`",
        "8:5: `x.yml` is there twice",
        "10:14: the path `../../etc` contains `..`",
        "10:36: the path `/world/../..` contains `..`",
        "10:61: the path `/abs` must be relative",
        "11:13: the path `srv` must be absolute",
        "11:23: the path `/srv/../etc` contains `..`",
        "12:11: the path `../b` contains `..`",
        "12:29: the path `../a` contains `..`"
      ]
    ],
    [
      "shorthands that are none",
      blueprint("state:\n  volumes: [ world, a:b:c:d:e, a:b:c:rx ]\n  mounts: [ 5 ]\n  copy: [ a ]\n"),
      [
        '3:14: expected `name:source:target[:mode]` or a mapping with name, source, target, mode, found the text "world"',
        '3:21: expected `name:source:target[:mode]` or a mapping with name, source, target, mode, found the text "a:b:c:d:e"',
        '3:32: expected cow, rw or ro, found the text "rx"; did you mean rw?',
        "4:13: expected `source:target[:mode]` or a mapping with source, target, mode, found 5",
        '5:11: expected `source:target[:when]` or a mapping with source, target, when, found the text "a"'
      ]
    ],
    [
      "right values in quotes, and one element in place of a list",
      blueprint(`includes: small
server: { ports: "2", limits: { swap: "-1", cpu_limit: "1.5e3" }, restart: { on_crash: "true" } }
state:
  volumes: world:worlds/survival:/world
  mounts: "/srv/maps:maps"
  copy: two words
`),
      [
        '2:11: expected a list, found the text "small"; write [small]',
        '3:18: expected a number, found the text "2"; write 2 without quotes',
        '3:39: expected a number of MiB, found the text "-1"; write -1 without quotes',
        '3:56: expected a number in percent of one thread, found the text "1.5e3"',
        '3:88: expected true or false, found the text "true"; write true without quotes',
        '5:12: expected a list of `name:source:target[:mode]`, found the text "world:worlds/survival:/world"; write [world:worlds/survival:/world]',
        '6:11: expected a list of `source:target[:mode]`, found the text "/srv/maps:maps"; write [/srv/maps:maps]',
        '7:9: expected a list of `source:target[:when]`, found the text "two words"'
      ]
    ],
    [
      "values that JSON cannot carry",
      blueprint("annotations: { a: .nan, b: [-.inf], seed: 8913466909937400889 }"),
      [
        "2:19: expected a finite number, found .nan",
        "2:29: expected a finite number, found -.inf",
        "2:43: 8913466909937400889 is too large to be kept exactly; write it in quotes"
      ]
    ]
  ]
  for (const [name, text, problems] of cases) {
    it(`${name}: refused with line and column`, () => assert.deepStrictEqual(problemsOf(text), problems))
  }

  const software: ReadonlyArray<readonly [string, string, ReadonlyArray<string>]> = [
    [
      "a blueprint in the software folder",
      blueprint(""),
      ["1:1: a `blueprint:` file belongs in the blueprints folder"]
    ],
    ["no invocation", "software: { id: a }", ["1:11: `software.invocation` is missing"]],
    [
      "ranges and image keys that cannot be",
      softwareFile(
        "a",
        '  images: { x: y }\n  mappings:\n    - x: "^1.2"\n    - z: "1"\n    - default: q\n    - "x"\n'
      ),
      [
        "6:10: cannot read the version range at `^1.2`; write versions with > >= < <= == or =, separated by spaces",
        "7:7: `z` is not a key of `images` (x)",
        "8:16: `q` is not a key of `images` (x)",
        '9:7: expected a mapping such as java_21: ">=1.20.5"'
      ]
    ],
    [
      "a pattern that does not compile",
      softwareFile("a", '  online-signal: "regex:(["\n'),
      ["4:18: not a regular expression: Invalid regular expression: /([/: Unterminated character class"]
    ],
    [
      "a command line whose quotes do not close",
      'software:\n  id: a\n  name: A\n  invocation: "sh -c \'unclosed"\n',
      ["4:15: not a command line: a ' is not closed"]
    ],
    [
      "signals, times and runtimes that are none",
      softwareFile(
        "a",
        "  stop-command: ^SIGFOO\n  start-timeout: 0\n  clean-exit: maybe\n  runtimes: [podman]\n"
      ),
      [
        '4:17: expected a console line, or a signal such as ^C or ^SIGTERM, found the text "^SIGFOO"',
        "5:18: expected a value between 1 and 86400, found 0",
        '6:15: expected crash or stop, found the text "maybe"',
        '7:14: expected docker or process, found the text "podman"'
      ]
    ]
  ]
  for (const [name, text, problems] of software) {
    it(`${name}: refused with line and column`, () => {
      const found = problemsOf(text, "software")
      assert.deepStrictEqual(found, problems)
    })
  }

  it("a name of JavaScript's own properties is no key of the images", () => {
    const found = problemsOf(
      softwareFile("a", "  images: { x: y }\n  mappings: [{ constructor: '1' }]\n"),
      "software"
    )
    assert.deepStrictEqual(found, ["5:16: `constructor` is not a key of `images` (x)"])
  })
})

describe("spec 4.2: untrusted YAML", () => {
  const bytes = (contents: Uint8Array) =>
    parseFile("blueprints", "a.yml", contents).problems.map((p) => p.reason)

  it("files that are too large, binary or not UTF-8 are refused", () => {
    assert.deepStrictEqual(bytes(new Uint8Array(1024 * 1024 + 1).fill(35)), ["the file is larger than 1 MiB"])
    assert.deepStrictEqual(bytes(new Uint8Array([0x7f, 0x45, 0x4c, 0x46, 0])), [
      "the file is binary: it contains NUL"
    ])
    assert.deepStrictEqual(bytes(new Uint8Array([0x61, 0xff, 0xfe])), ["the file is not UTF-8"])
  })

  it("a byte order mark is ignored", () => {
    assert.deepStrictEqual(problemsOf("\uFEFFblueprint: { id: a }\n"), [])
  })

  it("empty files, other roots and more than one document are refused", () => {
    assert.deepStrictEqual(problemsOf(""), ["1:1: the file is empty"])
    assert.deepStrictEqual(problemsOf("# nothing\n\n"), ["1:1: the file is empty"])
    assert.deepStrictEqual(problemsOf("null\n"), ["1:1: the file is empty"])
    assert.deepStrictEqual(problemsOf("- a\n"), ["1:1: expected a mapping, found a list"])
    assert.deepStrictEqual(problemsOf("just text"), ['1:1: expected a mapping, found the text "just text"'])
    assert.deepStrictEqual(problemsOf("blueprint: { id: a }\n---\nblueprint: { id: b }\n"), [
      "2:1: a file holds one document; this one has more"
    ])
  })

  it("broken YAML is refused with its position", () => {
    const [problem] = problemsOf("blueprint: { id: a\nserver: }\n")
    assert.match(problem ?? "", /^[12]:\d+: /)
  })

  it("duplicate keys are refused", () => {
    assert.deepStrictEqual(problemsOf("blueprint: { id: a }\nannotations: { b: 1, c: 2, b: 3 }\n"), [
      "2:28: the key `b` is there twice"
    ])
  })

  it("tags other than the core ones are refused", () => {
    for (const tag of ["!!js/function", "!!python/object", "!!binary", "!custom", "!!timestamp"]) {
      const problems = problemsOf(blueprint(`annotations: { a: ${tag} "x" }`))
      assert.strictEqual(problems.length, 1, tag)
      assert.match(problems[0] ?? "", /^2:19: Unresolved tag/)
    }
    assert.deepStrictEqual(problemsOf(blueprint('annotations: { a: !!str 1, b: !!int "2" }')), [])
  })

  it("other YAML versions are refused", () => {
    assert.deepStrictEqual(problemsOf("%YAML 1.1\n---\nblueprint: { id: a }\nsave: yes\n"), [
      "1:1: YAML 1.1 is not supported; write YAML 1.2"
    ])
  })

  it("alias bombs, loops and unknown anchors are refused; sharing is allowed", () => {
    const levels = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
    const bomb = levels
      .map(
        (name, i) =>
          `  ${name}: &${name} [${Array(9)
            .fill(i === 0 ? "x" : `*${levels[i - 1]}`)
            .join(", ")}]`
      )
      .join("\n")
    const [problem] = problemsOf(`blueprint: { id: a }\nannotations:\n${bomb}\n`)
    assert.match(problem ?? "", /aliases stand for more than 10000 values in all$/)
    assert.deepStrictEqual(problemsOf(blueprint("annotations: { a: &a [*a] }")), [
      "2:23: the alias *a stands in its own anchor"
    ])
    assert.deepStrictEqual(problemsOf(blueprint("annotations: { a: *b }")), [
      "2:19: no anchor &b before this alias"
    ])
    const shared = parse(blueprint("annotations: { a: &a [1], b: *a }")).definition
    assert.deepStrictEqual(shared?.kind === "blueprint" && shared.annotations, { a: [1], b: [1] })
  })

  it("values that are nested too deeply, directly or by aliases, are refused", () => {
    for (const depth of [70, 5_000, 20_000]) {
      const [problem] = problemsOf(blueprint(`annotations: { a: ${"[".repeat(depth)}${"]".repeat(depth)} }`))
      assert.match(problem ?? "", /nest|deep/i, String(depth))
    }
    const nest = (inner: string) => `${"[".repeat(40)}${inner}${"]".repeat(40)}`
    const [problem] = problemsOf(blueprint(`annotations: { a: &a ${nest("1")}, b: ${nest("*a")} }`))
    assert.match(problem ?? "", /nested more than 64 levels deep$/)
  })

  it("`__proto__` is an ordinary key", () => {
    const { definition } = read(
      blueprint('annotations: { __proto__: { polluted: true } }\nstate: { env: { __proto__: "x" } }')
    )
    assert.isFalse("polluted" in {})
    const annotations = definition?.kind === "blueprint" ? definition.annotations : {}
    assert.deepStrictEqual(Object.keys(annotations), ["__proto__"])
    assert.isFalse("polluted" in annotations)
    assert.match(problemsOf("__proto__: { blueprint: { id: a } }\n")[0] ?? "", /^1:1: no `blueprint:`/)
  })

  it("the list of problems is bounded", () => {
    const keys = Array.from({ length: 5_000 }, (_, i) => `k${i}: 1`).join("\n")
    assert.strictEqual(problemsOf(blueprint(keys)).length, 50)
    assert.isAtMost(problemsOf('"'.repeat(20_000)).length, 20)
  })

  it("text from a file is quoted on one line and cut", () => {
    const [problem = ""] = problemsOf(blueprint(`"${"a\\n".repeat(10_000)}": 1`))
    assert.isBelow(problem.length, 200)
    assert.notInclude(problem, "\n")
  })
})

describe("spec 4.11: files written for SLS load unchanged", () => {
  it("their keys are accepted in blueprints; ignored ones are reported once", () => {
    const { warnings } = read(
      blueprint(
        "world: { a: 1 }\ntraits: [x]\nserver: { path: /x, allowed_clients: [a] }\nstate: { hooks: { on: x } }"
      )
    )
    assert.strictEqual(warnings.length, 1)
    assert.match(warnings[0] ?? "", /^a\.yml: ignored keys: /)
    for (const key of ["world", "traits", "server.path", "server.allowed_clients", "state.hooks"]) {
      assert.include(warnings[0], key)
    }
  })

  it("`update` is accepted in software", () => {
    assert.deepStrictEqual(read(softwareFile("a", "  update: { check: true }\n"), "software").warnings, [
      "a.yml: ignored keys: software.update"
    ])
  })
})
