import { createHash, timingSafeEqual } from "node:crypto"
import { Context, Layer } from "effect"

const digest = (text: string) => createHash("sha256").update(text).digest()

/** The token that the control plane calls this daemon with: that of the last registration. */
export class NodeToken extends Context.Service<
  NodeToken,
  {
    set(token: string): void
    /** Refuses every token until the next registration. */
    clear(): void
    /** Compares in constant time; returns false before the first registration. */
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
