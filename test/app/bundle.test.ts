import { mkdirSync, rmSync, utimesSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { isStale } from "../../src/app/bundle.ts"
import { version } from "../../src/app/version.ts"
import { muster } from "../support/command.ts"
import { writeFiles } from "../support/definitions.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const BEFORE = new Date("2026-01-01T00:00:00Z")
const BUILT = new Date("2026-01-02T00:00:00Z")

/** A checkout with a bundle that is newer than all of its sources. */
const built = Effect.gen(function* () {
  const root = yield* temporaryFolder
  yield* writeFiles(root, {
    "src/main.ts": "",
    "src/app/one.ts": "",
    "src/app/two.ts": "",
    "dist/main.js": ""
  })
  for (const path of ["src/main.ts", "src/app/one.ts", "src/app/two.ts", "src/app"]) {
    utimesSync(join(root, path), BEFORE, BEFORE)
  }
  utimesSync(join(root, "dist/main.js"), BUILT, BUILT)
  return root
})

describe("docs/development.md: the bundle and its sources", () => {
  it.live("the bundle prints the version of the package", () =>
    Effect.gen(function* () {
      const { code, stderr, stdout } = yield* muster(["--version"])
      assert.deepStrictEqual([code, stderr], [0, ""])
      assert.include(stdout, version)
    })
  )

  it.effect("a bundle is stale once a source is changed, added or deleted", () =>
    Effect.gen(function* () {
      const changed = yield* built
      assert.isFalse(isStale(changed))
      utimesSync(join(changed, "src/app/one.ts"), new Date(), new Date())
      assert.isTrue(isStale(changed))
      const added = yield* built
      yield* writeFiles(added, { "src/app/three.ts": "" })
      assert.isTrue(isStale(added))
      const deleted = yield* built
      rmSync(join(deleted, "src/app/two.ts"))
      assert.isTrue(isStale(deleted))
    })
  )

  it.effect("a missing bundle is stale; a package without sources, and a build of the client, are not", () =>
    Effect.gen(function* () {
      const missing = yield* built
      rmSync(join(missing, "dist"), { recursive: true })
      assert.isTrue(isStale(missing))
      const published = yield* built
      rmSync(join(published, "src"), { recursive: true })
      assert.isFalse(isStale(published))
      const withClient = yield* built
      mkdirSync(join(withClient, "src/client/dist"), { recursive: true })
      yield* writeFiles(withClient, { "src/client/dist/client/index.js": "" })
      assert.isFalse(isStale(withClient))
    })
  )
})
