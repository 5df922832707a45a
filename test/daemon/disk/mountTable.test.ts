import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { below, mountOf, parseMountTable } from "../../../src/daemon/disk/mountTable.ts"

/** Escapes a name as the kernel does: blanks, tabs, line ends and backslashes as three octal digits. */
const escaped = (name: string) =>
  Buffer.from(name)
    .toString("latin1")
    .replace(/[ \t\n\\]/g, (one) => `\\${one.charCodeAt(0).toString(8).padStart(3, "0")}`)

const line = (path: string, options = "rw,relatime", own = "rw") =>
  `45 27 0:39 / ${escaped(path)} ${options} shared:2 - overlay ${escaped("muster-x y")} ${own}\n`

describe("proc(5), mountinfo", () => {
  it("names of any bytes are decoded", () => {
    const name = fc
      .string({ unit: "grapheme", minLength: 1 })
      .filter((text) => !/[\0\ud800-\udfff]/.test(text))
    fc.assert(
      fc.property(name, (text) => {
        const path = `/${text}`
        const [entry, ...others] = parseMountTable(line(path, "ro,nosuid", "rw,prjquota"))
        assert.deepStrictEqual(others, [])
        assert.deepStrictEqual(entry, {
          path,
          type: "overlay",
          source: "muster-x y",
          read_only: true,
          flags: ["ro", "nosuid"],
          options: ["rw", "prjquota"]
        })
      })
    )
  })

  it("a path below another begins with it and a slash; a path belongs to its longest mount point", () => {
    const table = parseMountTable(["/", "/a", "/a/b", "/ab", "/a/b"].map((path) => line(path)).join(""))
    const paths = (path: string) => below(path, table).map((entry) => entry.path)
    assert.deepStrictEqual(paths("/a"), ["/a", "/a/b", "/a/b"])
    assert.deepStrictEqual(paths("/a/c"), [])
    assert.deepStrictEqual(
      ["/x", "/a", "/a/b/c", "/abc"].map((path) => mountOf(path, table)?.path),
      ["/", "/a", "/a/b", "/"]
    )
    assert.strictEqual(mountOf("/a/b", table), table[4])
  })
})
