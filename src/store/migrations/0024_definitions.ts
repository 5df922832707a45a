import { createHash } from "node:crypto"
import { Array as Arr, Effect, Option, Schema, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"
import { readRows } from "../sql/rows.ts"

/** Rows per read. */
const PAGE = 500

/** The columns of servers besides the definition, as the earlier version knows them. */
const SAME = [
  "id",
  "blueprint_id",
  "node_id",
  "allocations",
  "overrides",
  "status",
  "install",
  "start_pending",
  "last_sequence",
  "created_at",
  "name",
  "labels",
  "expires_at",
  "updated_at",
  "restart",
  "redefinition",
  "expiry_announced",
  "created_by",
  "trace"
]

const readTexts = readRows(Schema.Struct({ id: Schema.String, definition: Schema.String }))

/** Moves each definition to the table `definitions`. */
const moveDefinitions = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const page = (after: string) =>
    Effect.map(
      readTexts(sql`SELECT id, definition FROM server_records WHERE id > ${after} ORDER BY id LIMIT ${PAGE}`),
      (rows) => [rows, Option.map(Option.fromUndefinedOr(rows.at(-1)), (last) => last.id)] as const
    )
  const pages = Stream.paginate("", (after) => Effect.map(page(after), ([rows, next]) => [[rows], next]))
  yield* Stream.runForEach(
    pages,
    Effect.fnUntraced(function* (rows) {
      const hashed = rows.map(({ definition, id }) => ({
        id,
        hash: createHash("sha256").update(definition).digest("hex"),
        definition
      }))
      const texts = new Map(hashed.map(({ definition, hash }) => [hash, definition]))
      const distinct = Array.from(texts, ([hash, definition]) => ({ hash, definition }))
      if (!Arr.isArrayNonEmpty(distinct)) return
      yield* sql`INSERT INTO definitions ${sql.insert(distinct)} ON CONFLICT (hash) DO NOTHING`
      const pairs = sql.csv(hashed.map(({ hash, id }) => sql`(${id}, ${hash})`))
      yield* sql`UPDATE server_records SET definition_hash = hashes.column2 FROM (VALUES ${pairs}) AS hashes
        WHERE server_records.id = hashes.column1`
    })
  )
})

const COLUMNS = SAME.join(", ")
const VALUES = SAME.map((column) => `NEW.${column}`).join(", ")
/** The hash of a definition that an earlier version writes: SQLite cannot compute it, so that any unique text will do. */
const HASH = {
  sqlite: {
    made: "lower(hex(randomblob(32)))",
    known: "(SELECT hash FROM definitions WHERE definition = NEW.definition LIMIT 1)"
  },
  postgres: {
    made: "encode(sha256(convert_to(NEW.definition, 'UTF8')), 'hex')",
    known: "encode(sha256(convert_to(NEW.definition, 'UTF8')), 'hex')"
  }
}

/** The statements of a trigger in place of each change of the view. */
const replacements = ({ known, made }: (typeof HASH)["sqlite"]) => {
  const keep = `INSERT INTO definitions (hash, definition) SELECT ${made}, NEW.definition
    WHERE NOT EXISTS (SELECT 1 FROM definitions WHERE hash = ${known})`
  const changes = SAME.map((column) => `${column} = NEW.${column}`).join(", ")
  return {
    INSERT: `${keep}; INSERT INTO server_records (${COLUMNS}, definition_hash) VALUES (${VALUES}, ${known});`,
    UPDATE: `${keep}; UPDATE server_records SET ${changes}, definition_hash = ${known} WHERE id = OLD.id;`,
    DELETE: "DELETE FROM server_records WHERE id = OLD.id;"
  }
}

/** The statements that make the table of the earlier version a view, for its processes during an upgrade. */
const earlierView = (dialect: keyof typeof HASH): ReadonlyArray<string> => [
  `CREATE VIEW servers AS SELECT ${COLUMNS}, (SELECT definition FROM definitions WHERE hash = definition_hash) AS definition
    FROM server_records`,
  ...Object.entries(replacements(HASH[dialect])).flatMap(([event, statements]) => {
    const name = `earlier_servers_${event.toLowerCase()}`
    const trigger = `CREATE TRIGGER ${name} INSTEAD OF ${event} ON servers FOR EACH ROW`
    if (dialect === "sqlite") return [`${trigger} BEGIN ${statements} END`]
    const changed = event === "DELETE" ? "OLD" : "NEW"
    return [
      `CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${statements} RETURN ${changed}; END $$`,
      `${trigger} EXECUTE FUNCTION ${name}()`
    ]
  })
]

/**
 * Stores each definition once, by the SHA-256 of its text, however many servers have it. Processes of the earlier version
 * continue on a view with the name and the columns of the former table.
 */
export const definitions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { id } = columnTypes(sql)
  yield* sql`CREATE TABLE definitions (hash ${id} PRIMARY KEY NOT NULL, definition TEXT NOT NULL)`
  yield* sql`ALTER TABLE servers RENAME TO server_records`
  // Never empty once the migration is done; SQLite adds no column without a default that must have a value.
  yield* sql`ALTER TABLE server_records ADD COLUMN definition_hash ${id} NOT NULL DEFAULT ''`
  yield* moveDefinitions(sql)
  yield* sql`ALTER TABLE server_records DROP COLUMN definition`
  yield* sql`CREATE INDEX server_records_by_definition ON server_records (definition_hash)`
  const statements = sql.onDialectOrElse({
    sqlite: () => earlierView("sqlite"),
    orElse: () => earlierView("postgres")
  })
  for (const statement of statements) yield* sql.unsafe(statement)
})
