import { assert, describe, it } from "@effect/vitest"
import type { Limits } from "../../../src/contract/domain/Limits.ts"
import type { InstallScript } from "../../../src/contract/domain/Software.ts"
import { baseName, scriptVariables } from "../../../src/daemon/install/bases.ts"
import { specOf } from "../support.ts"

const env = { FLAVOUR: "mint", MOTD: "hi", TOKEN: "s3cret", motto: "carpe diem" }

interface Given {
  readonly script: string
  readonly install?: Partial<InstallScript>
  readonly env?: Readonly<Record<string, string>>
  readonly limits?: Limits
}

const specWith = ({ env: variables = env, install = {}, limits = {}, script }: Given) =>
  specOf({ install: { script, ...install }, definition: { env: variables, limits } })

const seen = (given: Given) => {
  const spec = specWith(given)
  const { install_script } = spec.definition
  return install_script === null ? assert.fail("no script") : scriptVariables(spec, install_script)
}

const nameOf = (given: Given) => baseName(specWith(given))

describe("blueprints, software: the variables of an install script", () => {
  it("a script gets the variables that it names, in any syntax", () => {
    const scripts = [
      'echo "$FLAVOUR"',
      `echo "\${FLAVOUR:-plain}"`,
      "printenv FLAVOUR",
      `python3 -c 'import os; print(os.environ["FLAVOUR"], os.environ.get("FLAVOUR"))'`,
      "node -p process.env.FLAVOUR",
      "./install.sh # FLAVOUR"
    ]
    for (const script of scripts) {
      assert.deepStrictEqual(seen({ script }), { BUILD_NUMBER: "latest", FLAVOUR: "mint" }, script)
    }
  })

  it("a script that lists the environment gets all of them", () => {
    const all = { BUILD_NUMBER: "latest", ...env, MOTTO: "carpe diem", SERVER_MEMORY: "512" }
    const scripts = [
      "env > out",
      "printenv",
      "true; env -0 | sort",
      "export -p",
      "set | grep X",
      "envsubst < a > b",
      "tr '\\0' '\\n' < /proc/self/environ",
      "python3 -c 'import os; print(dict(os.environ))'",
      "node -p 'Object.keys(process.env)'"
    ]
    for (const script of scripts) {
      assert.deepStrictEqual(seen({ script, limits: { memory_limit: 512 } }), all, script)
    }
    for (const script of [
      "#!/usr/bin/env bash\ntrue",
      "set -eu\nexport -n A",
      "env A=1 true",
      "echo not set",
      "environment=1"
    ]) {
      assert.deepStrictEqual(seen({ script }), { BUILD_NUMBER: "latest" }, script)
    }
  })

  it("a variable that the value of another names is read, too: scripts evaluate values", () => {
    const variables = {
      DL_PATH: `https://example.com/{{FLAVOUR}}/\${KIND}.jar`,
      FLAVOUR: "a",
      KIND: "b",
      MOTD: "c"
    }
    assert.deepStrictEqual(seen({ script: "eval echo $DL_PATH", env: variables }), {
      BUILD_NUMBER: "latest",
      DL_PATH: variables.DL_PATH.replace("{{FLAVOUR}}", "a"),
      KIND: "b"
    })
  })

  it("`BUILD_NUMBER` is `latest` unless the blueprint sets it, and `SERVER_MEMORY` the limit in MiB", () => {
    const script = "echo $BUILD_NUMBER $SERVER_MEMORY"
    assert.deepStrictEqual(seen({ script }), { BUILD_NUMBER: "latest", SERVER_MEMORY: "0" })
    assert.deepStrictEqual(seen({ script, env: { build_number: "17" }, limits: { memory_limit: 512.5 } }), {
      BUILD_NUMBER: "17",
      SERVER_MEMORY: "512"
    })
  })

  it("neither the facts of one server nor the script's own variables come from a blueprint", () => {
    const script = "echo $HOME $SERVER_PORT $SERVER_ID $VERSION $INSTALL_DIR $MUSTER_X $ADDRESS"
    const variables = {
      HOME: "/x",
      VERSION: "9",
      SERVER_PORT: "9",
      MUSTER_X: "1",
      ADDRESS: "{{SERVER_PORT}}"
    }
    assert.deepStrictEqual(seen({ script, env: variables }), { BUILD_NUMBER: "latest", ADDRESS: "25565" })
  })
})

describe("blueprints, software: the base of a server", () => {
  it("without a variable that the script reads, version and script decide", () => {
    const scripts = ["true", "echo $VERSION $SOFTWARE_ID $BUILD_NUMBER", `echo \${ABSENT:-1}`]
    for (const script of scripts) {
      assert.strictEqual(nameOf({ script, env: { OTHER: "x" } }), nameOf({ script }), script)
    }
    assert.strictEqual(new Set(scripts.map((script) => nameOf({ script }))).size, scripts.length)
    assert.strictEqual(nameOf({ script: "env", install: { skip_scripts: true } }), "1.0")
    assert.strictEqual(baseName(specOf({ definition: { env } })), "1.0")
  })

  it("servers that differ in variables that the script does not read share a base", () => {
    const script = "echo $FLAVOUR"
    const one = nameOf({ script })
    assert.match(one, /^1\.0@[0-9a-f]{16}$/)
    assert.strictEqual(nameOf({ script, env: { ...env, MOTD: "other" }, limits: { memory_limit: 9 } }), one)
    assert.strictEqual(nameOf({ script, env: { MOTD: "x", FLAVOUR: "mint" } }), one)
  })

  it("a variable that the script reads and that differs, is absent or new makes another base", () => {
    const script = "echo $FLAVOUR $SERVER_MEMORY $BUILD_NUMBER"
    const names = [
      nameOf({ script }),
      nameOf({ script, env: { FLAVOUR: "lime" } }),
      nameOf({ script, env: {} }),
      nameOf({ script, limits: { memory_limit: 1024 } }),
      nameOf({ script, env: { ...env, BUILD_NUMBER: "17" } })
    ]
    assert.lengthOf(new Set(names), names.length)
  })

  it("the script after a warm-up counts, if there is a warm-up", () => {
    const given = { script: "true", install: { post_warmup_script: "echo $FLAVOUR" } }
    const warm = { ...given, install: { ...given.install, warmup: true } }
    assert.strictEqual(nameOf(given), nameOf({ ...given, env: { FLAVOUR: "another" } }))
    assert.notStrictEqual(nameOf(warm), nameOf({ ...warm, env: { FLAVOUR: "another" } }))
  })
})
