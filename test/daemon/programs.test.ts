import { spawnSync } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"

const root = resolve(import.meta.dirname, "../..")
const programs = readdirSync(join(root, "src/daemon"), { recursive: true, encoding: "utf8" }).filter((file) =>
  /\.(?:pl|sh)$/.test(file)
)

describe("programs of the daemon in Perl and sh", () => {
  it.each(programs)("%s is a program without errors and warnings", (file) => {
    const [command, ...options] = file.endsWith(".pl") ? ["perl", "-wc"] : ["sh", "-n"]
    const { status, stderr } = spawnSync(command ?? "", [...options, join(root, "src/daemon", file)])
    assert.deepStrictEqual(
      [status, stderr.toString().replace(/^.* syntax OK\n$/, "")],
      [0, ""],
      "the interpreter reads it"
    )
  })

  it("the bundle contains each of them, and looks for no file beside itself", () => {
    const chunks = join(root, "dist/chunks")
    const code = readdirSync(chunks)
      .map((name) => readFileSync(join(chunks, name), "utf8"))
      .join("\n")
    const missing = programs.filter(
      (file) =>
        !code.includes(JSON.stringify(readFileSync(join(root, "src/daemon", file), "utf8")).slice(1, -1))
    )
    assert.deepStrictEqual(missing, [])
    assert.notMatch(code, /new URL\("\.\/[\w.]+\.(?:pl|sh)"/)
  })
})
