import { readdirSync, readFileSync, readlinkSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { everyPlace } from "../access/scene.ts"
import { harness, newId } from "../support.ts"

/** Names that are no UTF-8: of a file, of a folder with a file, and of a link with such a target. */
const script = `printf file > "$(printf 'f\\377')" && mkdir "$(printf 'd\\376')" && printf inner > "$(printf 'd\\376/i\\375')" && ln -s "$(printf 'f\\377')" "$(printf 'l\\374')"`

const bytes = (text: string) => Buffer.from(text, "latin1")

describe("spec 4.6: names of a base that are no UTF-8", () => {
  it.live.each(Object.entries(everyPlace).filter(([, { far }]) => !far))(
    "%s: its servers have them",
    ([, { far: _, ...place }]) =>
      Effect.gen(function* () {
        const node = yield* harness(place)
        const id = yield* node.installed({ id: newId(), install: { script } })
        const folder = join(node.dataDir, "servers", id, "files")
        const names = readdirSync(folder, { encoding: "buffer" }).map((name) => name.toString("latin1"))
        assert.includeMembers(names, ["f\xff", "d\xfe", "l\xfc"])
        const at = (name: string) => bytes(`${folder}/${name}`)
        assert.strictEqual(readFileSync(at("f\xff"), "utf8"), "file")
        assert.strictEqual(readFileSync(at("d\xfe/i\xfd"), "utf8"), "inner")
        assert.deepStrictEqual(readlinkSync(at("l\xfc"), { encoding: "buffer" }), bytes("f\xff"))
      })
  )
})
