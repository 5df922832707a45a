import { Schema } from "effect"

/** Form of blueprint, mixin and software ids (blueprints.md). */
export const definitionIdPattern = /^[a-z0-9][a-z0-9_-]{0,62}$/

/** Id of a blueprint, mixin or software. */
export const DefinitionId = Schema.String.check(
  Schema.isPattern(definitionIdPattern, { expected: "an id such as survival_1 ([a-z0-9][a-z0-9_-]{0,62})" })
)

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const base32 = (value: number, digits: number): string => {
  let rest = value
  let text = ""
  for (let i = 0; i < digits; i++) {
    text = alphabet.charAt(rest % 32) + text
    rest = Math.floor(rest / 32)
  }
  return text
}

/**
 * A server id: `srv_` and a ULID.
 *
 * @param millis time in milliseconds since the epoch: ids sort by it
 * @param random 16 random bytes (80 bits are used)
 */
export const serverId = (millis: number, random: Uint8Array): string => {
  let tail = ""
  for (let i = 0; i < 16; i++) tail += alphabet.charAt((random[i] ?? 0) & 31)
  return `srv_${base32(millis, 10)}${tail}`
}

/** Form of a server id. */
export const serverIdPattern = /^srv_[0-9A-HJKMNP-TV-Z]{26}$/
