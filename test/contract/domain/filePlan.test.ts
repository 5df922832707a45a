import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import type { Copy, Mount, Volume } from "../../../src/contract/domain/Blueprint.ts"
import {
  containerPath,
  type FileDefinition,
  isAbove,
  isHome,
  patchConflicts,
  planFiles,
  targetParts
} from "../../../src/contract/domain/filePlan.ts"
import { filePlan } from "../../../src/daemon/files/sources.ts"

const volume = (target: string, mode: Volume["mode"], source = "w", name = "v"): Volume => ({
  name,
  source,
  target,
  mode
})
const mount = (target: string, mode: Mount["mode"], source = "/srv/m"): Mount => ({ source, target, mode })
const copy = (target: string, source = "files/c"): Copy => ({ source, target })

const definition = (parts: Partial<FileDefinition>): FileDefinition => ({
  volumes: [],
  mounts: [],
  copy: [],
  ...parts
})

const reasons = (parts: Partial<FileDefinition>) =>
  planFiles(definition(parts)).conflicts.map(({ impossible, reason }) => ({ impossible, reason }))

/** Three names only, so that targets collide. */
const name = fc.constantFrom("a", "b", "c")
const place = fc.array(name, { minLength: 1, maxLength: 3 }).map((parts) => parts.join("/"))
const target = fc.oneof(
  { weight: 6, arbitrary: place },
  { weight: 2, arbitrary: place.map((path) => `/${path}`) },
  { weight: 2, arbitrary: place.map((path) => `/home/container/./${path}/`) },
  { weight: 1, arbitrary: fc.constantFrom(".", "/", "", "/home/container", "a/../b", `x${"y".repeat(255)}`) }
)
const source = fc.constantFrom("s", "t")
const volumeMode = fc.constantFrom<Volume["mode"]>("cow", "rw", "ro")
const mountMode = fc.constantFrom<Mount["mode"]>("rw", "ro")
const definitions = fc.record({
  volumes: fc.array(fc.record({ name, source, target, mode: volumeMode }), { maxLength: 4 }),
  mounts: fc.array(fc.record({ source, target, mode: mountMode }), { maxLength: 3 }),
  copy: fc.array(fc.record({ source, target }), { maxLength: 3 })
})

/** A reference implementation of the rules that compares all pairs of entries. */
const naive = ({ copy, mounts, volumes }: FileDefinition) => {
  const shared = (entry: Volume | Mount) => !("name" in entry) || entry.mode !== "cow"
  const homeless = <A extends { readonly target: string }>(all: ReadonlyArray<A>) =>
    all.filter(({ target }) => !isHome(target))
  const partsOf = ({ target }: { readonly target: string }) =>
    Result.getOrElse(targetParts(target), (): ReadonlyArray<string> => [])
  const placed = <A extends { readonly target: string }>(all: ReadonlyArray<A>) =>
    all.filter((one) => partsOf(one).length > 0)
  const same = (a: { readonly target: string }, b: { readonly target: string }) =>
    isAbove(partsOf(a), partsOf(b)) && isAbove(partsOf(b), partsOf(a))
  const takers: ReadonlyArray<Volume | Mount> = [...placed(volumes), ...placed(mounts)]
  const hidden = (entry: Volume | Mount) =>
    takers.slice(takers.indexOf(entry) + 1).some((later) => shared(later) && same(entry, later)) ||
    (!shared(entry) && takers.some((other) => shared(other) && same(entry, other)))
  const sharers = takers.filter((one) => shared(one) && !hidden(one))
  return {
    placeless:
      volumes.length + homeless(mounts).length + homeless(copy).length - takers.length - placed(copy).length,
    visible: takers.filter((one) => !hidden(one)),
    within: takers
      .filter((one) => !hidden(one))
      .filter((one) => sharers.some((sharer) => sharer !== one && isAbove(partsOf(sharer), partsOf(one))))
  }
}

describe("spec 4.7: state: targets of files", () => {
  it("a target is normalised to a path in the instance folder", () => {
    for (const [written, parts] of [
      ["world", ["world"]],
      ["/world/", ["world"]],
      ["/home/container/world", ["world"]],
      ["./a//b/.", ["a", "b"]],
      ["/home/containers/x", ["home", "containers", "x"]]
    ] as const) {
      assert.deepStrictEqual(Result.getOrThrow(targetParts(written)), parts, written)
    }
    for (const [written, reason] of [
      [".", "names no file"],
      ["/", "names no file"],
      ["/home/container/", "names no file"],
      ["/home/container/../x", "contains `..`"],
      ["a\0", "contains a NUL character"],
      ["ü".repeat(128), "has a name of more than 255 bytes"],
      ["a/".repeat(65), "is more than 64 names deep"]
    ] as const) {
      const parts = targetParts(written)
      assert.strictEqual(Result.isFailure(parts) ? parts.failure : parts.success.join("/"), reason, written)
    }
  })

  it("`cow` volumes may overlap, nest and contain copies", () => {
    assert.deepStrictEqual(
      reasons({
        volumes: [volume("w", "cow"), volume("/w", "cow", "x", "x"), volume("w/deep", "cow")],
        copy: [copy("w"), copy("w"), copy("w/deep/file")]
      }),
      []
    )
  })

  it("a shared entry may lie in a `cow` volume; no entry may lie in a shared one", () => {
    assert.deepStrictEqual(reasons({ volumes: [volume("w", "cow"), volume("w/s", "rw")] }), [])
    const inside = (reason: string) => [{ impossible: true, reason }]
    assert.deepStrictEqual(
      reasons({ volumes: [volume("s/w", "cow", "w", "in"), volume("s", "rw", "s", "out")] }),
      inside("the target `s/w` of volume `in` (cow) lies in `s` of volume `out` (rw), which is shared")
    )
    assert.deepStrictEqual(
      reasons({ mounts: [mount("/s", "ro", "/srv/a"), mount("/home/container/s/m", "rw", "/srv/b")] }),
      inside(
        "the target `/home/container/s/m` of mount `/srv/b` (rw) lies in `/s` of mount `/srv/a` (ro), which is shared"
      )
    )
  })

  it("a copy may lie in a shared entry, which gets it if it is `rw`; in a read-only one it has no effect", () => {
    const planned = (mode: "rw" | "ro") =>
      planFiles(
        definition({
          volumes: [volume("s", mode)],
          mounts: [mount("/m", mode)],
          copy: [copy("s"), copy("s/a/b"), copy("/m/c"), copy("d")]
        })
      )
    const written = planned("rw")
    assert.deepStrictEqual([written.conflicts, written.hidden], [[], []])
    assert.deepStrictEqual(
      written.plan.copies.map(({ within }) => within?.target),
      ["s", "s", "/m", undefined]
    )
    const { conflicts, hidden, plan } = planned("ro")
    assert.deepStrictEqual(conflicts, [])
    assert.deepStrictEqual(
      plan.copies.map(({ target }) => target),
      ["d"]
    )
    assert.strictEqual(
      hidden[1]?.reason,
      "copy `files/c` has no effect: its target `s/a/b` lies in `s` of volume `v` (ro), which is read-only"
    )
  })

  it("a mount or copy may have the instance folder itself as its target; a volume may not", () => {
    for (const target of [".", "/", "./", "/home/container", "/home/container/."]) {
      assert.isTrue(isHome(target), target)
      assert.deepStrictEqual(reasons({ mounts: [mount(target, "ro")], copy: [copy(target)] }), [])
      assert.lengthOf(reasons({ volumes: [volume(target, "cow")] }), 1)
    }
    for (const target of ["a", "/a", "..", "/home", "/home/containers", ".a"]) {
      assert.isFalse(isHome(target), target)
    }
  })

  it("a container has a mount at its absolute target, too, unless that hides a folder of the system", () => {
    for (const target of ["/data", "/plugins/a", "/etc/app", "/usr/share/maps"]) {
      assert.strictEqual(containerPath(mount(target, "rw")), target)
    }
    const only = [
      "data",
      ".",
      "/",
      "/home/container",
      "/home/container/data",
      "/etc",
      "/usr",
      "/tmp",
      "/proc/x",
      "/a/../b"
    ]
    for (const target of only) assert.isUndefined(containerPath(mount(target, "rw")), target)
  })

  it("two entries at one target conflict if one is shared, except for identical entries", () => {
    const hidden = (reason: string) => [{ impossible: false, reason }]
    assert.deepStrictEqual(
      reasons({ volumes: [volume("s", "cow", "a", "a"), volume("/s", "ro", "b", "b")] }),
      hidden(
        "the target `/s` of volume `b` (ro) is that of volume `a` (cow), too: only `cow` volumes can have one together"
      )
    )
    assert.deepStrictEqual(
      reasons({ volumes: [volume("s", "rw")], mounts: [mount("s", "rw")] }),
      hidden(
        "the target `s` of mount `/srv/m` (rw) is that of volume `v` (rw), too: only `cow` volumes can have one together"
      )
    )
    assert.deepStrictEqual(reasons({ mounts: [mount("s", "ro"), mount("/s", "ro")] }), [])
  })

  it("a target outside the instance folder is a conflict that names it", () => {
    assert.deepStrictEqual(reasons({ volumes: [volume(".", "cow")], copy: [copy("a/../../b")] }), [
      { impossible: true, reason: "the target `.` of volume `v` (cow) names no file" },
      { impossible: true, reason: "the target `a/../../b` of copy `files/c` contains `..`" }
    ])
  })

  it("a patch of a read-only file is a conflict; a patch in `rw` or `cow` is not", () => {
    const { plan } = planFiles(
      definition({
        volumes: [volume("ro", "ro"), volume("rw", "rw"), volume("cow", "cow")],
        mounts: [mount("/home/container/conf/x.yml", "ro")]
      })
    )
    const files = ["ro", "ro/deep/a.yml", "./ro//b", "rw/a", "cow/a", "road", "conf/x.yml", "conf/y.yml"]
    assert.deepStrictEqual(
      patchConflicts(plan, files).map(({ file }) => file),
      ["ro", "ro/deep/a.yml", "./ro//b", "conf/x.yml"]
    )
    assert.strictEqual(
      patchConflicts(plan, ["conf/x.yml"])[0]?.reason,
      "the file `conf/x.yml` lies in `/home/container/conf/x.yml` of mount `/srv/m` (ro), which is read-only: no patch can change it"
    )
  })

  it("the plan agrees with a comparison of all pairs, for any definition", () => {
    fc.assert(
      fc.property(definitions, (any) => {
        const { conflicts, plan } = planFiles(any)
        const expected = naive(any)
        assert.strictEqual(conflicts.filter(({ other }) => other === undefined).length, expected.placeless)
        assert.sameMembers(
          conflicts
            .filter(({ impossible, other }) => impossible && other !== undefined)
            .map(({ entry }) => entry),
          expected.within
        )
        const planned = plan.shared.map(({ of }) => ("volume" in of ? of.volume : of.mount))
        assert.sameMembers([...plan.cow.map((one) => one.volume), ...planned], expected.visible)
      }),
      { numRuns: 1_000 }
    )
  })

  it("without a conflict the plan contains every entry, and a node can make it", () => {
    fc.assert(
      fc.property(definitions, (any) => {
        const { conflicts, hidden, plan } = planFiles(any)
        const planned = filePlan(any)
        assert.strictEqual(
          Result.isFailure(planned),
          conflicts.some(({ impossible }) => impossible)
        )
        if (conflicts.length > 0) return
        assert.deepStrictEqual(Result.getOrThrow(planned), plan)
        assert.strictEqual(
          plan.cow.length + new Set(plan.shared.map(({ parts }) => parts.join("/"))).size,
          plan.cow.length + plan.shared.length
        )
        assert.strictEqual(plan.copies.length + hidden.length, any.copy.length)
        for (const { parts, read_only } of plan.shared) {
          const inside = [...plan.cow, ...plan.shared].filter((one) => isAbove(parts, one.parts))
          assert.strictEqual(inside.length, 1)
          if (read_only) assert.isFalse(plan.copies.some((one) => isAbove(parts, one.parts)))
        }
      }),
      { numRuns: 1_000 }
    )
  })

  it("planning 50,000 entries compares no pairs", () => {
    const many = Array.from({ length: 50_000 }, (_, i) => i)
    const { hidden, plan } = planFiles({
      volumes: many.map((i) => volume(`v${i}/world`, i % 2 === 0 ? "cow" : "ro")),
      mounts: many.map((i) => mount(`m${i}`, "ro")),
      copy: many.map((i) => copy(`m${i}/file`))
    })
    assert.strictEqual(hidden.length, many.length)
    assert.strictEqual(plan.shared.length, many.length + many.length / 2)
  })
})
