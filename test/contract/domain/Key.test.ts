import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { KeyScope, Right, rightsOf, shownRights } from "../../../src/contract/domain/Key.ts"
import { CurrentPrincipal, requirePath } from "../../../src/controlPlane/http/Principal.ts"
import { freshSeed } from "../../support/random.ts"

const checked = (property: fc.IRawProperty<unknown>) => fc.assert(property, { seed: freshSeed() })

const allowed = fc.uniqueArray(fc.constantFrom(...Right.literals))

describe("spec 10.1: rights of files", () => {
  it("only an AppAdmin key has them unless allow names them; files includes browse", () => {
    for (const scope of KeyScope.literals)
      assert.strictEqual(
        rightsOf({ scope }).has("browse") || rightsOf({ scope }).has("files"),
        scope === "AppAdmin"
      )
    checked(
      fc.property(allowed, (allow) => {
        const rights = rightsOf({ scope: "Operator", allow })
        assert.strictEqual(rights.has("files"), allow.includes("files"))
        assert.strictEqual(rights.has("browse"), allow.includes("browse") || allow.includes("files"))
      })
    )
  })

  it("the shown rights of a key give the same rights, and no right takes another away", () => {
    checked(
      fc.property(allowed, allowed, (some, more) => {
        const rights = rightsOf({ scope: "Operator", allow: some })
        assert.deepStrictEqual(rightsOf({ scope: "Operator", allow: shownRights(rights) }), rights)
        const both = rightsOf({ scope: "Operator", allow: [...some, ...more] })
        assert.deepStrictEqual(
          [...rights].filter((right) => !both.has(right)),
          []
        )
      })
    )
  })
})

/** Names of which some begin like others. */
const names = fc.array(fc.constantFrom("a", "ab", "b", "A"), { maxLength: 4 })
const pathOf = (parts: ReadonlyArray<string>) => `/${parts.join("/")}`

const reaches = (paths: ReadonlyArray<string> | undefined, path: string) => {
  const key = { key_id: "key_x", name: "x", scope: "Operator" } as const
  return requirePath(path).pipe(
    Effect.provideService(CurrentPrincipal, { ...key, ...(paths === undefined ? {} : { paths }) }),
    Effect.match({ onSuccess: () => undefined, onFailure: ({ detail }) => detail }),
    Effect.runSync
  )
}

describe("spec 10.1: folders of a key", () => {
  it("a key reaches exactly its folders and what is below them", () => {
    checked(
      fc.property(fc.array(names, { minLength: 1, maxLength: 4 }), names, (folders, parts) => {
        const isBelow = folders.some((folder) => folder.every((name, at) => parts[at] === name))
        assert.strictEqual(reaches(folders.map(pathOf), pathOf(parts)) === undefined, isBelow)
      })
    )
  })

  it("a key without folders reaches all", () => {
    checked(fc.property(names, (parts) => assert.isUndefined(reaches(undefined, pathOf(parts)))))
  })

  it("the refusal names the path and the folders", () => {
    assert.strictEqual(
      reaches(["/plugins", "/config"], "/plugins2"),
      "the API key does not reach /plugins2: it is limited to /plugins, /config"
    )
  })
})
