import { Schema } from "effect"

/** The routes that a key may call (decisions, section 5). */
export const KeyScope = Schema.Literals(["AppAdmin", "Node", "Metrics"])
export type KeyScope = typeof KeyScope.Type
