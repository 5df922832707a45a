import { Context } from "effect"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"

export const makeTokenSeal = (secret: Uint8Array): Seal => makeSeal(secret, "node tokens")

/** The seal of node tokens. Default: a secret that ends with the process. */
export const TokenSeal: Context.Reference<Seal> = Context.Reference("muster/nodes/TokenSeal", {
  defaultValue: () => makeTokenSeal(passingSecret())
})
