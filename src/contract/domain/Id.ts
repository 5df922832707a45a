import { Schema } from "effect"

/** Form of blueprint, mixin and software ids (spec 4.2). */
export const definitionIdPattern = /^[a-z0-9][a-z0-9_-]{0,62}$/u

export const DefinitionId = Schema.String.check(
  Schema.isPattern(definitionIdPattern, { expected: "an id such as survival_1 ([a-z0-9][a-z0-9_-]{0,62})" })
)

/** The id of a server. The brand keeps it apart from ids of nodes; every text decodes, an unknown one is 404 later. */
export const ServerId = Schema.String.pipe(Schema.brand("ServerId"))
export type ServerId = typeof ServerId.Type

/** The id of a node; see {@link ServerId}. */
export const NodeId = Schema.String.pipe(Schema.brand("NodeId"))
export type NodeId = typeof NodeId.Type

const LETTERS = 26n
const TAIL_DIGITS = 11
const TAILS = 36n ** BigInt(TAIL_DIGITS)

/** Returns a server id: twelve characters `[a-z0-9]`, the first a letter (spec 3.2), from 16 random bytes. */
export const serverId = (random: Uint8Array): ServerId => {
  const number = random.reduce((sum, byte) => sum * 256n + BigInt(byte), 0n) % (LETTERS * TAILS)
  const letter = String.fromCharCode("a".charCodeAt(0) + Number(number / TAILS))
  return ServerId.make(letter + (number % TAILS).toString(36).padStart(TAIL_DIGITS, "0"))
}

/** Whether a text may be the beginning of a server id, and is no whole one. */
export const isBeginningOfServerId = (text: string): boolean => /^[a-z][a-z0-9]{0,10}$/.test(text)

/** Form of a server id; versions before 0.2 made the longer one. */
export const serverIdPattern = /^(?:[a-z][a-z0-9]{11}|srv_[0-9A-HJKMNP-TV-Z]{26})$/
