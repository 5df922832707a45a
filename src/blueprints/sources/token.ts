import { Effect, FileSystem } from "effect"
import { cannot, SyncFailed } from "./reasons.ts"
import type { Source } from "./Source.ts"

/** A token as a header, with the texts that no message may contain. */
export interface Login {
  readonly authorization: string | undefined
  readonly secrets: ReadonlyArray<string>
}

/** The user for a token if the address has none: git hosts accept any, and GitHub asks for this one. */
const STANDARD_USER = "x-access-token"

/** Reads the token of a source. */
export const login = Effect.fnUntraced(function* (
  { address, token }: Source,
  variable: (name: string) => string | undefined
): Effect.fn.Return<Login, SyncFailed, FileSystem.FileSystem> {
  if (token === undefined) return { authorization: undefined, secrets: [] }
  const fs = yield* FileSystem.FileSystem
  const text =
    "env" in token
      ? (variable(token.env) ?? "")
      : yield* Effect.mapError(fs.readFileString(token.file), cannot("the file of its token cannot be read"))
  const secret = text.trim()
  if (secret === "") {
    const where = "env" in token ? `the variable ${token.env} is not set` : "the file of its token is empty"
    return yield* new SyncFailed({ reason: where })
  }
  if (/[\p{Cc}\p{Cf}]/u.test(secret)) {
    return yield* new SyncFailed({ reason: "its token has more than one line, or control characters" })
  }
  const basic = Buffer.from(`${address.user ?? STANDARD_USER}:${secret}`).toString("base64")
  return { authorization: `Basic ${basic}`, secrets: [basic, secret] }
})
