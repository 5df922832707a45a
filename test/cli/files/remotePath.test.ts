import { describe, expect, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { remotePathOf } from "../../../src/cli/files/remotePath.ts"
import { childPath, nameOf, parentOf, whyNoPath } from "../../../src/contract/domain/Files.ts"

describe("spec 10.2: SERVER:PATH", () => {
  it("the server ends at the first colon; the path begins at the folder of the server", () => {
    for (const [text, server, path, isFolder] of [
      ["lobby:/plugins/x.jar", "lobby", "/plugins/x.jar", false],
      ["lobby:server.properties", "lobby", "/server.properties", false],
      ["k7f:/plugins/", "k7f", "/plugins", true],
      ["lobby:", "lobby", "/", true],
      ["lobby:/", "lobby", "/", true],
      ["my lobby:a:b", "my lobby", "/a:b", false]
    ] as const)
      expect(Result.getOrThrow(remotePathOf(text))).toEqual({ server, path, isFolder })
  })

  it("a text without a server, and a path that leads elsewhere, are refused with the reason", () => {
    for (const [text, reason] of [
      ["", "expected SERVER:PATH, got an empty text"],
      ["/plugins", "expected SERVER:PATH, got /plugins"],
      [":/plugins", "expected SERVER:PATH, got :/plugins"],
      ["lobby:/../x", "the path /../x contains `..`"],
      ["lobby:a//b", "the path /a//b has an empty name or `.`"],
      [`lobby:${"x".repeat(256)}`, `the path /${"x".repeat(256)} has a name of more than 255 bytes`]
    ])
      expect(remotePathOf(text ?? "")).toEqual(Result.fail(reason))
  })

  it("every accepted path is one of the API, and its folder with its name is the path again", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        const read = remotePathOf(`lobby:${text}`)
        if (Result.isFailure(read)) return
        const { path } = read.success
        expect(whyNoPath(path)).toBeUndefined()
        if (path !== "/") expect(childPath(parentOf(path), nameOf(path))).toBe(path)
      })
    )
  })
})
