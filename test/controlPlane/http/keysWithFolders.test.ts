import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../../support/command.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus } from "../../support/servers.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

layer(service(), options)("keys that are limited to folders", (it) => {
  describe("spec 10.1", () => {
    it.effect("the holder, the list and the creation of a key show its folders", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const paths = ["/plugins", "/world/region, old"]
        const body = { name: "x", scope: "Operator", allow: ["files"], paths }
        const { json: made } = yield* expectStatus(admin, 201, "POST", "/api/keys", { body })
        assert.deepInclude(made, { allow: ["files"], paths })
        const { json: all } = yield* expectStatus(admin, 200, "GET", "/api/keys")
        assert.deepInclude(
          all.find(({ id }: { readonly id: string }) => id === made.id),
          { paths }
        )
        const reader = yield* keyed("ReadOnly", { allow: ["browse"], paths })
        const { json: own } = yield* expectStatus(reader, 200, "GET", "/api/keys/self")
        assert.deepInclude(own, { rights: ["read", "browse"], paths })
        const { json: unlimited } = yield* expectStatus(admin, 200, "GET", "/api/keys/self")
        assert.includeMembers(unlimited.rights, ["browse", "files"])
        assert.notProperty(unlimited, "paths")
      })
    )

    it.effect.each<readonly [string, object]>([
      ["a key that reaches no files", { scope: "Operator" }],
      ["rights beside files", { scope: "Operator", allow: ["console", "change"] }],
      ["full rights", { scope: "AppAdmin" }],
      ["no folder", { scope: "Operator", allow: ["files"], paths: [] }],
      [
        "33 folders",
        { scope: "Operator", allow: ["files"], paths: Array.from({ length: 33 }, (_, n) => `/${n}`) }
      ],
      ["a relative folder", { scope: "Operator", allow: ["files"], paths: ["plugins"] }],
      ["a folder above", { scope: "Operator", allow: ["files"], paths: ["/plugins/../world"] }],
      ["a folder with / at its end", { scope: "Operator", allow: ["files"], paths: ["/plugins/"] }]
    ])("a key with folders is 422 with %s", ([, grant]) =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const body = { name: "x", paths: ["/plugins"], ...grant }
        assertError(yield* admin.request("POST", "/api/keys", { body }), 422)
      })
    )

    it.effect("muster keys makes and lists keys with folders", () =>
      Effect.gen(function* () {
        const { dataDir } = yield* Muster
        const run = (...args: ReadonlyArray<string>) =>
          muster(["keys", ...args], { MUSTER_DATA_DIR: dataDir })
        const create = ["create", "--name", "plugins", "--scope", "Operator"]
        const folders = ["--path", "/plugins", "--path", "/config, old"]
        const { code, stderr } = yield* run(...create, "--allow", "browse,files", ...folders)
        assert.strictEqual(code, 0, stderr)
        const { stdout } = yield* run("list")
        assert.include(stdout, "Operator: browse,files (folders /plugins,/config, old)")
        const misfit = yield* run(...create, "--allow", "console", ...folders)
        assert.strictEqual(misfit.code, 64)
        assert.include(misfit.stderr, "paths only with browse or files in allow")
        const relative = yield* run(...create, "--allow", "files", "--path", "plugins")
        assert.strictEqual(relative.code, 64)
        assert.include(relative.stderr, "it does not begin with /")
      })
    )
  })
})
