import { randomBytes } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import { makeTokenSeal } from "../../../src/controlPlane/nodes/nodeWrites.ts"
import { plain } from "../../support/ids.ts"

const secret = randomBytes(32)
const seal = plain(makeTokenSeal(secret))

describe("sealed tokens", () => {
  it("a token opens with the same secret for the same node, and each seal has another text", () => {
    const [one, other] = [seal.seal("n1", "token"), seal.seal("n1", "token")]
    assert.notStrictEqual(one, other)
    for (const sealed of [one, other]) {
      assert.strictEqual(makeTokenSeal(secret).open(NodeId.make("n1"), sealed), "token")
      assert.isTrue(sealed.startsWith(`s1.${seal.fingerprint}.`))
    }
  })

  it("a token does not open for another node, with another secret, or after a changed byte", () => {
    const sealed = seal.seal("n1", "token")
    assert.isUndefined(seal.open("n2", sealed))
    assert.isUndefined(makeTokenSeal(randomBytes(32)).open(NodeId.make("n1"), sealed))
    const foreign = plain(makeTokenSeal(randomBytes(32)))
    assert.isUndefined(foreign.open("n1", sealed.replace(seal.fingerprint, foreign.fingerprint)))
    for (let at = 0; at < sealed.length; at++) {
      const changed = `${sealed.slice(0, at)}${sealed[at] === "A" ? "B" : "A"}${sealed.slice(at + 1)}`
      // The last character may have bits that base64url drops.
      if (at < sealed.length - 1) assert.isUndefined(seal.open("n1", changed), `character ${at}`)
      assert.isUndefined(seal.open("n1", sealed.slice(0, at)), `first ${at} characters`)
    }
  })

  it("a token in clear text, or an empty one, is refused", () => {
    for (const text of [
      "",
      "token",
      randomBytes(32).toString("base64url"),
      "s1..",
      `s1.${seal.fingerprint}.`
    ]) {
      assert.isUndefined(seal.open("n1", text))
    }
  })
})
