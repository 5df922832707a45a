import { assert, describe, it } from "@effect/vitest"
import { blueprintSet } from "../../../../src/controlPlane/blueprints/definitions.ts"
import { renderProblem } from "../../../../src/controlPlane/blueprints/parse/located.ts"
import { parseFile } from "../../../../src/controlPlane/blueprints/parse/parse.ts"

const fileOf = (name: string, text: string) => parseFile("blueprints", name, new TextEncoder().encode(text))

const blueprint = (schedules: string, more = "") =>
  fileOf(
    "a.yml",
    `blueprint: { id: a }\nserver: { software: s, version: "1" }\n${more}schedules:\n${schedules}`
  )

const problemsOf = (schedules: string) =>
  blueprint(schedules).problems.map(({ column, line, reason }) => `${line}:${column}: ${reason}`)

const entry = (name: string, more = "") =>
  `  - { name: ${name}, cron: 0 4 * * *, steps: [{ wait: 1 }]${more} }`

const entries = (count: number, prefix: string) =>
  Array.from({ length: count }, (_, n) => entry(`${prefix}${n}`)).join("\n")

describe("spec 13.7: schedules of a file", () => {
  it("steps are those of the API, keys have - or _, and the rest has defaults", () => {
    const { definition, problems } = blueprint(`  - name: nightly
    cron: 0 4 * * MON#2
    max-parallel: 2
    only-if: { min-uptime: 60 }
    steps:
      - warn: { line: "say {{left}}", at: [60, 10] }
      - { power: restart, wait-seconds: 5 }
      - { wait-for: running, timeout: 60 }
      - backup: { expires-in: 3600, labels: { a-b: c } }
`)
    assert.deepStrictEqual(problems, [])
    assert.deepStrictEqual(definition?.kind === "blueprint" && definition.schedules, [
      {
        ...{ name: "nightly", cron: "0 4 * * MON#2", timezone: "UTC", enabled: true },
        ...{ only_if: { min_uptime: 60 }, missed: "skip", catch_up: 3600, overlap: "skip" },
        ...{ max_parallel: 2, stagger: 0, on_failure: "stop" },
        steps: [
          { warn: { line: "say {{left}}", at: [60, 10] } },
          { power: "restart", wait_seconds: 5 },
          { wait_for: "running", timeout: 60 },
          { backup: { expires_in: 3600, labels: { "a-b": "c" } } }
        ]
      }
    ])
  })

  it("each mistake has its line and column", () => {
    assert.deepStrictEqual(
      problemsOf(`  - name: nightly
    cron: 0 4 30 2 *
    steps:
      - power: reboot
      - comand: [x]
      - wait: 5m
      - { wait: 60, foo: 1 }
      - wait_for: running
      - backup: { nam: x }
      - {}
      - x
    only_if: { status: bad, uptime: 5 }
    on_failure: stopp
`),
      [
        "5:11: `cron`: it has no next time: 0 4 30 2 *",
        '7:16: `power`: expected "start" | "stop" | "restart" | "kill" | "pause" | "unpause"',
        "8:9: unknown key `comand`; did you mean `command`?",
        "9:15: `wait`: expected a number of seconds (300 here)",
        "10:21: unknown key `foo`; the keys here are wait",
        "11:9: `timeout`: required, but missing",
        "12:19: unknown key `nam`; did you mean `name`?",
        "13:9: expected a step, found a mapping",
        '14:9: expected a step: a mapping with one of command, wait, power, warn, wait_for, upgrade, backup, webhook, found the text "x"',
        '15:24: `status`: expected "installing" | "offline" | "starting" | "running" | "stopping" | "paused" | "unknown"',
        "15:29: unknown key `uptime`; the keys here are status, min_uptime",
        '16:17: expected stop or continue, found the text "stopp"; did you mean stop?'
      ]
    )
  })

  it.each([
    ["0 0 4 * * *", "UTC", /^4:\d+: `cron`: it has six fields/],
    ["0 4 * * *", "Europe/Atlantis", /^4:\d+: `timezone`: no time zone has this name: Europe\/Atlantis/]
  ])("the cron %s in %s is refused", (cron, timezone, problem) => {
    const found = problemsOf(`  - { name: a, cron: "${cron}", timezone: ${timezone}, steps: [{ wait: 1 }] }`)
    assert.match(found.join("\n"), problem)
  })

  it("a cron that begins with * needs quotes, and the problem says so", () => {
    const [first] = problemsOf("  - { name: a, cron: */5 * * * *, steps: [{ wait: 1 }] }")
    assert.match(first ?? "", /alias.*; put the value in quotes$/)
  })

  it("names are unique, and schedules, steps and their time are bounded", () => {
    assert.deepStrictEqual(problemsOf(`${entry("a")}\n${entry("a")}`), [
      "5:5: the schedule `a` is there twice"
    ])
    assert.deepStrictEqual(problemsOf(entries(10, "s")), [])
    assert.deepStrictEqual(problemsOf(entries(11, "s")), ["4:3: expected at most 10 schedules, found 11"])
    const many = Array.from({ length: 21 }, () => "{ wait: 1 }").join()
    const steps = (text: string) => problemsOf(`  - { name: a, cron: 0 4 * * *, steps: [${text}] }`)
    assert.deepStrictEqual(steps(many), ["4:40: expected 1 to 20 steps, found a list; there are 21"])
    assert.deepStrictEqual(steps(""), ["4:40: expected 1 to 20 steps, found a list; there are 0"])
    assert.deepStrictEqual(steps("{ wait: 86400 }, { wait: 1 }"), [
      "4:40: expected steps that take at most 24 h together"
    ])
  })
})

describe("spec 4.3, 13.7: schedules of mixins", () => {
  const mixin = (schedules: string) => fileOf("m.yml", `mixin: { id: m }\nschedules:\n${schedules}`)
  const setOf = (...files: ReadonlyArray<ReturnType<typeof fileOf>>) =>
    blueprintSet(files.flatMap(({ definition }) => definition ?? []))

  it("a schedule of the blueprint replaces that of the mixin with its name", () => {
    const { problems, value } = setOf(
      mixin(`${entry("one")}\n${entry("two")}`),
      blueprint(entry("one", ", stagger: 7"), "includes: [m]\n")
    )
    assert.deepStrictEqual(problems, [])
    assert.deepStrictEqual(
      value.blueprints.get("a")?.schedules?.map(({ name, stagger }) => [name, stagger]),
      [
        ["two", 0],
        ["one", 7]
      ]
    )
  })

  it("the bound counts those of mixins, and all blueprints have at most 1,000", () => {
    const composed = setOf(mixin(entries(6, "m")), blueprint(entries(5, "s"), "includes: [m]\n"))
    assert.match(
      composed.problems.map(renderProblem).join(),
      /`schedules` with its mixins: expected at most 10 schedules, found 11/
    )
    const files = Array.from({ length: 101 }, (_, n) =>
      fileOf(
        `b${n}.yml`,
        `blueprint: { id: b${String(n).padStart(3, "0")} }\nserver: { software: s, version: "1" }\nschedules:\n${entries(10, "s")}`
      )
    )
    const { problems, value } = setOf(...files)
    assert.strictEqual(value.blueprints.size, 100)
    assert.deepStrictEqual(problems.map(renderProblem), [
      "b100.yml:1:18: the blueprints up to this one have more than 1000 schedules"
    ])
  })
})
