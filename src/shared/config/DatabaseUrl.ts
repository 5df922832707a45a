/** The database of an installation, as `MUSTER_DATABASE_URL` and `muster db copy` name it. */
import { Redacted } from "effect"

/** A PostgreSQL database. Only {@link PostgresUrl.url} holds the password. */
export interface PostgresUrl {
  readonly _tag: "Postgres"
  readonly url: Redacted.Redacted<string>
  /** Name or address, or the folder of a Unix socket. */
  readonly host: string
  readonly port: number
  readonly database: string
  /** File with certificates (PEM) for the check of the server's; the default is the system's. */
  readonly sslrootcert?: string
}

export interface SqliteUrl {
  readonly _tag: "Sqlite"
  readonly filename: string
}

export type DatabaseUrl = SqliteUrl | PostgresUrl

const parameter =
  /^(?:host|port|user|password|dbname|application_name|connect_timeout|options|sslmode|sslrootcert)$/
const sslModes = /^(?:disable|allow|prefer|require|verify-ca|verify-full)$/

const decoded = (text: string): string | undefined => {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

const parsePostgres = (text: string): PostgresUrl | undefined => {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  const given = url.searchParams
  const sslmode = given.get("sslmode")
  const timeout = given.get("connect_timeout")
  if (![...given.keys()].every((name) => parameter.test(name))) return undefined
  if (sslmode !== null && !sslModes.test(sslmode)) return undefined
  if (timeout !== null && !/^\d{1,4}$/.test(timeout)) return undefined
  const host = given.get("host") ?? decoded(url.hostname.replace(/^\[(.*)\]$/, "$1"))
  const port = Number(given.get("port") ?? (url.port || "5432"))
  const user = given.get("user") ?? decoded(url.username)
  const path = decoded(url.pathname.slice(1))
  const database = given.get("dbname") ?? (path === "" ? user : path)
  if (host === undefined || decoded(url.password) === undefined) return undefined
  // Without a user, the client would take that of the process: the URL must name one.
  if (user === undefined || user === "" || database === undefined || database === "") return undefined
  if (!(Number.isInteger(port) && port >= 1 && port <= 65_535)) return undefined
  const sslrootcert = given.get("sslrootcert")
  return {
    _tag: "Postgres",
    url: Redacted.make(text),
    host: host === "" ? "localhost" : host,
    port,
    database,
    ...(sslrootcert === null || sslmode === "disable" ? {} : { sslrootcert })
  }
}

export const parseDatabaseUrl = (text: string): DatabaseUrl | undefined => {
  if (text.includes("\0")) return undefined
  const sqlite = /^sqlite:(.+)$/s.exec(text)
  if (sqlite?.[1] !== undefined) return { _tag: "Sqlite", filename: sqlite[1] }
  return /^postgres(ql)?:\/\//.test(text) ? parsePostgres(text) : undefined
}

/** Returns a URL for people and logs, without everything that may hold a password. */
export const withoutSecrets = (text: string): string =>
  /@|password/i.test(text) ? `${/^[a-z][a-z0-9+.-]*:/i.exec(text)?.[0] ?? ""}…` : text

/** Returns the name of a database for people, without a password. */
export const describeDatabase = (url: DatabaseUrl): string =>
  url._tag === "Sqlite"
    ? `SQLite ${url.filename}`
    : `PostgreSQL ${url.database} on ${url.host.startsWith("/") ? `${url.host}/.s.PGSQL.${url.port}` : `${url.host}:${url.port}`}`
