import { execFileSync } from "node:child_process"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { root } from "../support/docs.ts"

const LONGEST = 72

/** A package or an archive has no history. */
const subjects = existsSync(join(root, ".git"))
  ? execFileSync("git", ["-c", "safe.directory=*", "log", "-100", "--no-merges", "--format=%s"], {
      cwd: root,
      encoding: "utf8"
    })
      .trim()
      .split("\n")
  : []

describe("architecture: commits", () => {
  it(`the subjects of the last 100 commits have at most ${LONGEST} characters`, () => {
    expect(subjects.filter((subject) => subject.length > LONGEST)).toEqual([])
  })
})
