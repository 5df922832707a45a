import { Context } from "effect"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"

/** Makes the seal of the tokens that nodes are called with; rows are nodes. */
export const makeTokenSeal = (secret: Uint8Array): Seal => makeSeal(secret, "node tokens")

/** The seal of this process. Default: a secret that ends with it. */
export const TokenSeal: Context.Reference<Seal> = Context.Reference("muster/nodes/TokenSeal", {
  defaultValue: () => makeTokenSeal(passingSecret())
})
