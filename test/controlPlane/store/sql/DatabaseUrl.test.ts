import { inspect } from "node:util"
import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import {
  describeDatabase,
  parseDatabaseUrl,
  withoutSecrets
} from "../../../../src/shared/config/DatabaseUrl.ts"

describe("MUSTER_DATABASE_URL", () => {
  it("a file URL selects a SQLite file", () => {
    assert.deepStrictEqual(parseDatabaseUrl("sqlite:data/muster.db"), {
      _tag: "Sqlite",
      filename: "data/muster.db"
    })
  })

  it.each([
    ["postgres://u:p@db.example.com/muster", "PostgreSQL muster on db.example.com:5432"],
    ["postgresql://u:p@[::1]:6432/muster?sslmode=verify-full", "PostgreSQL muster on ::1:6432"],
    [
      "postgres://u@localhost/muster?host=/run/postgresql",
      "PostgreSQL muster on /run/postgresql/.s.PGSQL.5432"
    ],
    ["postgres://u:p%40%2F@127.0.0.1", "PostgreSQL u on 127.0.0.1:5432"],
    ["postgres:///muster?user=u&host=/tmp", "PostgreSQL muster on /tmp/.s.PGSQL.5432"],
    ["postgres://localhost?user=u&dbname=d&port=1", "PostgreSQL d on localhost:1"]
  ])("%s", (text, described) => {
    const url = parseDatabaseUrl(text)
    assert.isDefined(url)
    if (url === undefined) return
    assert.strictEqual(describeDatabase(url), described)
    assert.strictEqual(url._tag === "Postgres" ? Redacted.value(url.url) : "", text)
  })

  it.each([
    "",
    "sqlite:",
    "mysql://u:p@h/d",
    "postgres://",
    "postgres://h/d",
    "postgres://u:p@h:0/d",
    "postgres://u:p@h:70000/d",
    "postgres://u:%zz@h/d",
    "postgres://u:p@h/d?sslmode=maybe",
    "postgres://u:p@h/d?ssl_mode=require",
    "postgres://u:p@h/d?connect_timeout=soon",
    "postgres://u:p@h/d\0"
  ])("%j is refused", (text) => {
    assert.isUndefined(parseDatabaseUrl(text))
  })

  it("no text contains the password", () => {
    for (const text of ["postgres://u:s3cret@h/d", "postgres://u@h/d?password=s3cret"]) {
      const url = parseDatabaseUrl(text)
      assert.isDefined(url)
      if (url === undefined) continue
      for (const shown of [describeDatabase(url), JSON.stringify(url), inspect(url), withoutSecrets(text)]) {
        assert.notInclude(shown, "s3cret")
      }
    }
    assert.strictEqual(withoutSecrets("mysql://x"), "mysql://x")
  })
})
