import { createHash, timingSafeEqual } from "node:crypto"
import { Context, Layer } from "effect"

const digest = (text: string) => createHash("sha256").update(text).digest()

/** The token that the control plane calls this daemon with: that of the last registration, and no other. */
export class NodeToken extends Context.Service<
  NodeToken,
  {
    set(token: string): void
    /** From now on no token is accepted, until the next registration. */
    clear(): void
    /** Takes the same time whatever the text holds; false for every text before the first registration. */
    accepts(text: string): boolean
  }
>()("muster/daemon/NodeToken") {
  static readonly layer = Layer.sync(NodeToken, () => {
    let current: Buffer | undefined
    return NodeToken.of({
      set: (token) => {
        current = digest(token)
      },
      clear: () => {
        current = undefined
      },
      accepts: (text) => current !== undefined && timingSafeEqual(digest(text), current)
    })
  })
}
