/** The table `definitions`: each definition of servers once, by the SHA-256 of its text. A row never changes. */

import { hash } from "node:crypto"
import { Array as Arr, Effect, Schema } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { ServerDefinition } from "../../../contract/domain/ServerDefinition.ts"
import { RecentMap } from "../../../shared/work/RecentMap.ts"
import { makeSharedColumn } from "../sql/columns.ts"
import { BooleanColumn, byIds, CHUNK, insertRows, readRows } from "../sql/rows.ts"

type DefinitionRow = { readonly hash: string; readonly definition: string }

const readDefinitions = readRows(Schema.Struct({ hash: Schema.String, definition: Schema.String }))
const readUses = readRows(Schema.Struct({ hash: Schema.String, is_unused: BooleanColumn }))

/** Characters of the parts that {@link shareParts} keeps. */
const MOST_CHARACTERS = 8 * 1024 * 1024

const parts = new RecentMap<string, unknown>(MOST_CHARACTERS, (text) => text.length)

/** Shares equal parts: else a full garbage collection of 100,000 definitions visits ten times as many objects. */
const shareParts = (definition: ServerDefinition): ServerDefinition => {
  const shared: Record<string, unknown> = { ...definition }
  for (const [name, part] of Object.entries(definition)) {
    if (typeof part !== "object" || part === null) continue
    const text = JSON.stringify(part)
    shared[name] = parts.get(text) ?? part
    parts.set(text, shared[name])
  }
  // Each part is equal to that of the definition.
  return shared as ServerDefinition
}

const shared = makeSharedColumn(ServerDefinition, shareParts)
const rows = new RecentMap<ServerDefinition, DefinitionRow>()

export const definitionRow = (definition: ServerDefinition): Effect.Effect<DefinitionRow> => {
  const known = rows.get(definition)
  if (known !== undefined) return Effect.succeed(known)
  return Effect.map(shared.encode(definition), (text) => {
    const row = { hash: hash("sha256", text), definition: text }
    rows.set(definition, row)
    return row
  })
}

/** Keeps definitions as part of the write of their servers: unused ones may be deleted at any time. */
export const keepDefinitions = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  definitions: Iterable<ServerDefinition>
) {
  const kept = yield* Effect.forEach(new Set(definitions), definitionRow)
  const distinct = [...new Map(kept.map((row) => [row.hash, row])).values()]
  yield* insertRows(sql, "definitions", distinct, "ON CONFLICT (hash) DO NOTHING")
})

/** Returns definitions by their hashes; a hash that is not in the table is missing. */
export const findDefinitions = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  hashes: ReadonlySet<string>
) {
  const found = new Map<string, ServerDefinition>()
  for (const hash of hashes) {
    const known = shared.known(hash)
    if (known !== undefined) found.set(hash, known)
  }
  const others = [...hashes].filter((hash) => !found.has(hash))
  const rows = yield* byIds(others, (some) =>
    readDefinitions(sql`SELECT hash, definition FROM definitions WHERE ${sql.in("hash", some)}`)
  )
  for (const { definition, hash } of rows) {
    found.set(hash, yield* Effect.orDie(Effect.fromResult(shared.decode(definition, hash))))
  }
  return found
})

const unused = (sql: SqlClient.SqlClient) =>
  sql`NOT EXISTS (SELECT 1 FROM servers WHERE definition_hash = hash)`

/** Returns unused hashes among the next `most`, and the hash to continue after, or empty to start. */
export const findUnused = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  after: string,
  most: number
) {
  const looked = yield* readUses(sql`SELECT hash, CASE WHEN ${unused(sql)} THEN 1 ELSE 0 END AS is_unused
    FROM definitions WHERE hash > ${after} ORDER BY hash LIMIT ${most}`)
  return {
    hashes: looked.flatMap(({ hash, is_unused }) => (is_unused ? [hash] : [])),
    last: looked.length < most ? "" : (looked.at(-1)?.hash ?? "")
  }
})

/** Deletes the definitions that no server has, as part of a write: no other write runs meanwhile. */
export const deleteUnused = (
  sql: SqlClient.SqlClient,
  hashes: ReadonlyArray<string>
): Effect.Effect<void, SqlError.SqlError> =>
  Effect.forEach(
    Arr.chunksOf(hashes, CHUNK),
    (some) => sql`DELETE FROM definitions WHERE ${sql.and([sql.in("hash", some), unused(sql)])}`,
    { discard: true }
  )
