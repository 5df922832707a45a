import { Schema } from "effect"

/** What a key may do (decisions, section 5). */
export const KeyScope = Schema.Literals(["AppAdmin", "Node", "Metrics"])
export type KeyScope = typeof KeyScope.Type
