import { assert, describe, it } from "@effect/vitest"
import { Predicate } from "effect"
import { parse as parseYaml } from "yaml"
import { Volume } from "../../../../src/contract/domain/Blueprint.ts"
import { ConfigParser } from "../../../../src/contract/domain/ConfigPatch.ts"
import { CleanExit, InstallScript } from "../../../../src/contract/domain/Software.ts"
import { blueprintSet } from "../../../../src/controlPlane/blueprints/definitions.ts"
import type { Folder } from "../../../../src/controlPlane/blueprints/parse/parse.ts"
import {
  backupPart,
  blueprint,
  blueprintFile,
  filesPart,
  keepPart,
  mixin,
  mixinFile
} from "../../../../src/controlPlane/blueprints/parse/parseBlueprint.ts"
import { schedulePart } from "../../../../src/controlPlane/blueprints/parse/parseSchedules.ts"
import {
  config,
  limits,
  placement,
  restart,
  serverPart
} from "../../../../src/controlPlane/blueprints/parse/parseServer.ts"
import {
  installScript,
  quiescePart,
  software,
  softwareFile
} from "../../../../src/controlPlane/blueprints/parse/parseSoftware.ts"
import { copy, mount, statePart, volume } from "../../../../src/controlPlane/blueprints/parse/parseState.ts"
import { stopMethod } from "../../../../src/daemon/runtime/exitReason.ts"
import { codeOf, tableOf } from "../../../support/markdown.ts"
import { read, texts } from "./support.ts"

type Path = ReadonlyArray<string>

/** Returns the value at a path; numbers are indices of lists. */
const at = (value: unknown, path: Path): unknown => {
  const [key, ...rest] = path
  if (key === undefined) return value
  return Predicate.hasProperty(value, key) ? at(value[key], rest) : undefined
}

/** Returns a file with `part` at a path; `0` makes a list. */
const withPart = (file: unknown, path: Path, part: unknown): unknown => {
  const [key, ...rest] = path
  if (key === undefined) return part
  if (key === "0") return [withPart({}, rest, part)]
  return { ...(Predicate.isObject(file) ? file : {}), [key]: withPart(at(file, [key]), rest, part) }
}

const kinds = {
  blueprint: { blueprint: { id: "a" }, server: { software: "paper", version: "1" } },
  mixin: { mixin: { id: "a" } },
  software: { software: { id: "a", invocation: "run" } }
}

/** Every mapping with known keys in a definition file, by its name in the references. */
const mappings = {
  ...{ blueprintFile, blueprint, mixinFile, mixin, server: serverPart, limits, config, placement, restart },
  ...{ backup: backupPart, keep: keepPart, schedule: schedulePart, quiesce: quiescePart },
  ...{ files: filesPart, state: statePart, volume, mount, copy, softwareFile, software, installScript }
}

/** The position of each mapping in a file and in the parsed result, and its required fields. */
interface Place {
  readonly kind: keyof typeof kinds
  readonly path: Path
  /** If absent, the mapping is read from the file itself, not from the composed result. */
  readonly composed?: Path
  readonly read?: Path
  readonly least: Readonly<Record<string, unknown>>
}

const places: Readonly<Record<keyof typeof mappings, Place>> = {
  blueprintFile: { kind: "blueprint", path: [], least: { blueprint: { id: "a" } } },
  blueprint: { kind: "blueprint", path: ["blueprint"], least: { id: "a" } },
  mixinFile: { kind: "mixin", path: [], least: { mixin: { id: "a" } } },
  mixin: { kind: "mixin", path: ["mixin"], least: { id: "a" } },
  server: { kind: "blueprint", path: ["server"], composed: [], least: { software: "paper", version: "1" } },
  limits: { kind: "blueprint", path: ["server", "limits"], composed: ["limits"], least: {} },
  config: {
    kind: "blueprint",
    path: ["server", "configs", "a.yml"],
    composed: ["configs", "a.yml"],
    least: { parser: "yaml" }
  },
  placement: { kind: "blueprint", path: ["server", "placement"], composed: ["placement"], least: {} },
  restart: { kind: "blueprint", path: ["server", "restart"], composed: ["restart"], least: {} },
  backup: { kind: "blueprint", path: ["backup"], composed: ["backup"], least: {} },
  keep: { kind: "blueprint", path: ["backup", "keep"], composed: ["backup", "keep"], least: {} },
  schedule: {
    kind: "blueprint",
    path: ["schedules", "0"],
    composed: ["schedules", "0"],
    least: { name: "nightly", cron: "0 4 * * *", steps: [{ wait: 1 }] }
  },
  files: { kind: "blueprint", path: ["files"], composed: ["files"], least: {} },
  state: { kind: "blueprint", path: ["state"], composed: ["state"], least: {} },
  volume: {
    kind: "blueprint",
    path: ["state", "volumes", "0"],
    composed: ["state", "volumes", "0"],
    least: { name: "v", source: "v", target: "v" }
  },
  mount: {
    kind: "blueprint",
    path: ["state", "mounts", "0"],
    composed: ["state", "mounts", "0"],
    least: { source: "/v", target: "v" }
  },
  copy: {
    kind: "blueprint",
    path: ["state", "copy", "0"],
    composed: ["state", "copy", "0"],
    least: { source: "v", target: "v" }
  },
  softwareFile: { kind: "software", path: [], least: { software: { id: "a", invocation: "run" } } },
  software: {
    kind: "software",
    path: ["software"],
    read: ["software"],
    least: { id: "a", invocation: "run" }
  },
  installScript: {
    kind: "software",
    path: ["software", "install-script"],
    read: ["software", "install_script"],
    least: { script: "true" }
  },
  quiesce: {
    kind: "software",
    path: ["software", "quiesce"],
    read: ["software", "quiesce"],
    least: { before: ["save"], until: "saved" }
  }
}

/** Returns the parsed form of a mapping in a file. */
const load = ({ composed, kind, path, read: within = [] }: Place, part: unknown) => {
  const folder = kind === "software" ? "software" : "blueprints"
  const code = JSON.stringify(withPart(kinds[kind], path, part))
  const { definition, problems } = read({ folder, file: "a.yml", code })
  const set = blueprintSet(definition === undefined ? [] : [definition])
  const value = composed === undefined ? at(definition, within) : at(set.value.blueprints.get("a"), composed)
  const allProblems = composed === undefined ? problems : [...problems, ...set.problems]
  return { value, reasons: allProblems.map(({ reason }) => reason) }
}

const reference = (name: string): Folder =>
  ["software", "softwareFile", "installScript", "quiesce"].includes(name) ? "software" : "blueprints"

/** Returns the rows of a table of fields. */
const rowsOf = (name: string) =>
  tableOf(texts[reference(name)], `fields: ${name}`).map(([field = "", standard = "", meaning = ""]) => ({
    field: codeOf(field) ?? field,
    standard,
    meaning
  }))

const underscored = (key: string) => key.replaceAll("-", "_")

describe("the references of definition files: fields", () => {
  for (const [name, { shape }] of Object.entries(mappings)) {
    it(`the table of ${name} has every field that is read and no other, in the order of the decoder`, () => {
      const rows = rowsOf(name)
      const acted = rows.filter(({ standard }) => standard !== "ignored")
      assert.deepStrictEqual(
        acted.map(({ field }) => field),
        [...shape.keys]
      )
      for (const { field, meaning } of acted) assert.isAbove(meaning.length, 5, field)
      assert.deepStrictEqual(
        rows.filter(({ standard }) => standard === "ignored").map(({ field }) => field),
        [...shape.ignored]
      )
    })
  }

  for (const [name, place] of Object.entries(places)) {
    it(`the table of ${name} marks required fields and prints the right defaults`, () => {
      const required = rowsOf(name).filter(({ standard }) => standard === "required")
      assert.deepStrictEqual(
        required.map(({ field }) => field).toSorted(),
        Object.keys(place.least).toSorted()
      )
      const { reasons, value } = load(place, place.least)
      assert.deepStrictEqual(reasons, [])
      for (const { field } of required) {
        const without = Object.entries(place.least).filter(([key]) => key !== field)
        assert.match(
          load(place, Object.fromEntries(without)).reasons.join(),
          /is missing|^no `blueprint:`/,
          field
        )
      }
      for (const { field, standard } of rowsOf(name)) {
        const printed = codeOf(standard)
        if (printed === undefined) continue
        const found = at(value, [underscored(field)]) ?? at(value, ["process", underscored(field)])
        assert.deepStrictEqual(found, parseYaml(printed), `${name}.${field}`)
      }
    })
  }

  it("a default that is described in words has the described effect", () => {
    const inWords = Object.keys(mappings).flatMap((name) =>
      rowsOf(name).flatMap(({ field, standard }) =>
        codeOf(standard) !== undefined || ["required", "none", "ignored", "see below"].includes(standard)
          ? []
          : [`${name}.${field}: ${standard}`]
      )
    )
    assert.deepStrictEqual(inWords, [
      "blueprint.name: the id",
      "server.image: by `mappings`",
      "software.name: the id",
      "software.runtimes: `[docker]` or `[process]`"
    ])
    const named = load(places.software, { ...places.software.least, images: { a: "a/b" } })
    assert.deepInclude(named.value, { name: "a", runtimes: ["docker"] })
    assert.deepInclude(load(places.software, places.software.least).value, { runtimes: ["process"] })
    assert.deepInclude(load(places.blueprint, { id: "a" }).value, { name: "a" })
  })

  it("the table of a field with a few literals lists all of them", () => {
    const codes = (name: string, field: string) =>
      new Set(
        [
          ...(rowsOf(name)
            .find((row) => row.field === field)
            ?.meaning.matchAll(/`([^`]+)`/g) ?? [])
        ].map(([, code]) => code)
      )
    for (const parser of ConfigParser.literals) {
      assert.isTrue(codes("config", "parser").has(parser), parser)
      assert.include(texts.blueprints, `**\`${parser}\`**`)
    }
    for (const mode of Volume.fields.mode.literals) assert.include(texts.blueprints, `| \`${mode}\` |`)
    for (const word of CleanExit.literals) assert.isTrue(codes("software", "clean-exit").has(word), word)
    for (const word of InstallScript.fields.warmup_failure_policy.literals) {
      assert.isTrue(codes("installScript", "warmup-failure-policy").has(word), word)
    }
    const signals = [...codes("software", "stop-command")].filter((code) => code?.startsWith("^"))
    assert.lengthOf(signals, 8)
    for (const signal of signals) {
      assert.deepStrictEqual(
        load(places.software, { ...places.software.least, "stop-command": signal }).reasons,
        []
      )
      assert.property(stopMethod(signal ?? ""), "signal")
    }
  })
})
