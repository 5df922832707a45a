/**
 * Every setting of the service: its name, default, meaning and what it may be. Read once, at the start; nothing
 * else looks at the environment.
 */
import { isIP } from "node:net"
import { Config, Context, Data, Effect, Layer, Option, Redacted, Result } from "effect"
import { IpNetwork } from "effect/net"
import { type NodeAllocation, parsePortRanges } from "./domain/Allocation.ts"
import { type DatabaseUrl, parseDatabaseUrl, withoutSecrets } from "./store/DatabaseUrl.ts"

/** A setting that cannot be used; its message is the one line that the start stops with. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{
  readonly name: string
  readonly value: string
  readonly may: string
}> {
  override get message() {
    return `${this.name} is ${JSON.stringify(this.value)}; it may be ${this.may}`
  }
}

/** The service cannot start; its message says why and what to do. */
export class StartError extends Data.TaggedError("StartError")<{ readonly message: string }> {}

/** One setting. `read` answers undefined for text that it may not be. */
export interface Setting<A> {
  readonly name: string
  readonly standard: string
  readonly meaning: string
  readonly may: string
  readonly read: (text: string) => A | undefined
  /** What is shown of a wrong value; without it, all. */
  readonly show?: (text: string) => string
}

export const setting = <A>(
  name: string,
  standard: string,
  meaning: string,
  kind: Pick<Setting<A>, "may" | "read" | "show">
): Setting<A> => ({ name, standard, meaning, ...kind })

export const text = { may: "any text", read: (value: string) => value }

export const path = {
  may: "a path",
  read: (value: string) => (value === "" || value.includes("\0") ? undefined : value)
}

export const file = {
  may: "unset or the path of a file",
  read: (value: string) => (value.includes("\0") ? undefined : value)
}

const number = (minimum: number, maximum: number) => ({
  may: `a number from ${minimum} to ${maximum}`,
  read: (value: string) => {
    const parsed = value.trim() === "" ? Number.NaN : Number(value)
    return parsed >= minimum && parsed <= maximum ? parsed : undefined
  }
})

export const whole = (minimum: number, maximum: number) => ({
  may: `a whole number from ${minimum} to ${maximum}`,
  read: (value: string) => {
    const parsed = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN
    return parsed >= minimum && parsed <= maximum ? parsed : undefined
  }
})

export const oneOf = <const A extends string>(...values: ReadonlyArray<A>) => ({
  may: values.map((value) => `"${value}"`).join(" or "),
  read: (value: string) => values.find((candidate) => candidate === value)
})

const yesNo = {
  may: '"true" or "false"',
  read: (value: string) => (value === "true" ? true : value === "false" ? false : undefined)
}

const yesNoAuto = {
  may: '"true", "false" or "auto"',
  read: (value: string) => (value === "auto" ? ("auto" as const) : yesNo.read(value))
}

const list = {
  may: "a comma-separated list",
  read: (value: string): ReadonlyArray<string> =>
    value
      .split(",")
      .map((item) => item.trim())
      .filter((item) => item !== "")
}

const origins = {
  may: "a comma-separated list of origins such as https://panel.example.com, or *",
  read: (value: string): ReadonlyArray<string> | undefined => {
    const items = list.read(value)
    return items.every((item) => item === "*" || /^https?:\/\/[^/\s,]+$/.test(item)) ? items : undefined
  }
}

const networks = {
  may: "a comma-separated list of networks such as 10.0.0.0/8",
  read: (value: string): ReadonlyArray<IpNetwork.IpNetwork> | undefined => {
    const read = list.read(value).map((item) => IpNetwork.fromString(item))
    return read.every(Result.isSuccess) ? read.map((item) => item.success) : undefined
  }
}

export const allocations = {
  may: "IP address:ports, such as 127.0.0.1:25565-25664; several separated by ;",
  read: (value: string): ReadonlyArray<NodeAllocation> | undefined => {
    const read: Array<NodeAllocation> = []
    for (const part of value.split(";")) {
      const colon = part.lastIndexOf(":")
      const address = part
        .slice(0, colon)
        .trim()
        .replace(/^\[(.*)\]$/, "$1")
      const ports = part.slice(colon + 1).trim()
      if (colon < 1 || isIP(address) === 0 || parsePortRanges(ports) === undefined) return undefined
      read.push({ address, alias: "", force_outgoing_ip: false, ports })
    }
    return read
  }
}

const databaseUrl = {
  may: "unset (SQLite in the data folder), sqlite:file or postgres://user:password@host:port/database?sslmode=require",
  read: (value: string): DatabaseUrl | { readonly _tag: "DataFolder" } | undefined =>
    value === "" ? { _tag: "DataFolder" } : parseDatabaseUrl(value),
  show: withoutSecrets
}

/** All settings, in the order in which the README lists them. */
export const settings = {
  host: setting("MUSTER_HOST", "127.0.0.1", "Address that the service listens on.", text),
  port: setting("MUSTER_PORT", "5620", "Port of the service; 0: any free port, printed.", whole(0, 65535)),
  adminKey: setting(
    "APP_ADMIN_API_KEY",
    "",
    "An admin key set from outside; any non-empty value works.",
    text
  ),
  dataDir: setting(
    "MUSTER_DATA_DIR",
    "./data",
    "Folder of the database, the key file and the embedded node.",
    path
  ),
  blueprintsDir: setting("MUSTER_BLUEPRINTS_DIR", "./blueprints", "Folder of blueprints and mixins.", path),
  softwareDir: setting("MUSTER_SOFTWARE_DIR", "./software", "Folder of software definitions.", path),
  blueprintSources: setting(
    "MUSTER_BLUEPRINT_SOURCES",
    "",
    "YAML file that lists git repositories to sync into these two folders.",
    file
  ),
  databaseUrl: setting(
    "MUSTER_DATABASE_URL",
    "",
    "The database; unset: SQLite in the data folder.",
    databaseUrl
  ),
  databasePool: setting(
    "MUSTER_DATABASE_POOL",
    "10",
    "Connections to PostgreSQL; one more waits for news of other replicas.",
    whole(1, 1000)
  ),
  databaseTimeout: setting(
    "MUSTER_DATABASE_TIMEOUT",
    "650",
    "Milliseconds without an answer after which PostgreSQL counts as away, and requests that need it fail.",
    whole(100, 60_000)
  ),
  embeddedNode: setting(
    "MUSTER_EMBEDDED_NODE",
    "auto",
    "Whether this process is a node, too. With auto: unless the database is PostgreSQL, which any number of services share; a node in one of them is reached by that one only.",
    yesNoAuto
  ),
  embeddedAllocations: setting(
    "MUSTER_EMBEDDED_ALLOCATIONS",
    "127.0.0.1:25565-25664",
    "Addresses and ports of the embedded node.",
    allocations
  ),
  embeddedOnShutdown: setting(
    "MUSTER_EMBEDDED_ON_SHUTDOWN",
    "stop",
    "What becomes of the embedded node's servers when the service ends: stopped gracefully, or kept running and picked up by the next start.",
    oneOf("stop", "keep")
  ),
  embeddedRuntime: setting(
    "MUSTER_EMBEDDED_RUNTIME",
    "auto",
    "What servers of the embedded node run in: plain processes; or containers where the software may and has an image and the engine answers, else processes. With auto, that there is no engine is no warning.",
    oneOf("auto", "process", "docker")
  ),
  dockerSocket: setting("MUSTER_DOCKER_SOCKET", "/var/run/docker.sock", "Socket of the Docker Engine.", path),
  dockerPull: setting(
    "MUSTER_DOCKER_PULL",
    "if-not-present",
    "When images are pulled.",
    oneOf("always", "if-not-present", "never")
  ),
  dockerConfig: setting(
    "MUSTER_DOCKER_CONFIG",
    "",
    "Configuration of Docker's command line with the users of image registries, as `docker login` makes it; unset: ~/.docker/config.json.",
    file
  ),
  forceOutgoingIp: setting(
    "MUSTER_FORCE_OUTGOING_IP",
    "false",
    "Whether what servers in containers send leaves from the address that they are allocated at (IPv4).",
    yesNo
  ),
  nodeName: setting("MUSTER_NODE_NAME", "local", "Display name of the embedded node.", text),
  nodeLocation: setting("MUSTER_NODE_LOCATION", "local", "Location label of the embedded node.", text),
  nodeUrl: setting(
    "MUSTER_NODE_URL",
    "",
    "Address shown for the embedded node; unset: that of the service.",
    text
  ),
  allowedMounts: setting("MUSTER_ALLOWED_MOUNTS", "", "Host folders that blueprints may mount from.", list),
  instanceFiles: setting(
    "MUSTER_INSTANCE_FILES",
    "auto",
    "How instances are made of a base folder: overlay mounts, copies that share blocks, plain copies. One that does not work gives way to the next; auto: the first that works.",
    oneOf("auto", "overlay", "reflink", "copy")
  ),
  diskCheck: setting(
    "MUSTER_DISK_CHECK",
    "30",
    "Seconds between two measurements of what servers with a disk limit have written; none where the file system has project quota.",
    whole(1, 86400)
  ),
  passEnv: setting(
    "MUSTER_PASS_ENV",
    "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy,NODE_EXTRA_CA_CERTS,SSL_CERT_FILE,SSL_CERT_DIR,npm_config_registry,NPM_CONFIG_REGISTRY",
    "Environment variables handed to install scripts and servers (NAME or PREFIX*); no other is.",
    list
  ),
  placement: setting(
    "MUSTER_PLACEMENT",
    "spread",
    "Strategy of the load balancer.",
    oneOf("spread", "binpack", "round-robin")
  ),
  overcommitMemory: setting(
    "MUSTER_OVERCOMMIT_MEMORY",
    "1",
    "Memory that may be placed on a node, as a multiple of what it has.",
    number(0.1, 1000)
  ),
  overcommitDisk: setting(
    "MUSTER_OVERCOMMIT_DISK",
    "1",
    "Disk that may be placed on a node, as a multiple of what it has.",
    number(0.1, 1000)
  ),
  nodeLostAfter: setting(
    "MUSTER_NODE_LOST_AFTER",
    "600",
    "Seconds without a sign of life after which a node's ephemeral servers are given up.",
    whole(1, 31_536_000)
  ),
  nodeHeartbeatTimeout: setting(
    "MUSTER_NODE_HEARTBEAT_TIMEOUT",
    "30",
    "Seconds without a sign of life after which a node is not connected; daemons send one every 10.",
    whole(1, 3600)
  ),
  nodeCa: setting(
    "MUSTER_NODE_CA",
    "",
    "Certificates (PEM) that those of daemons are checked against, in place of the system's.",
    file
  ),
  tlsCert: setting("MUSTER_TLS_CERT", "", "Certificate (PEM) of the service; with it, HTTPS only.", file),
  tlsKey: setting("MUSTER_TLS_KEY", "", "Private key (PEM) of the certificate.", file),
  eventsKeepHours: setting(
    "MUSTER_EVENTS_KEEP_HOURS",
    "24",
    "Hours that events can be replayed.",
    number(0.01, 8760)
  ),
  eventsKeepCount: setting(
    "MUSTER_EVENTS_KEEP_COUNT",
    "1000000",
    "Number of events that can be replayed.",
    whole(1, 1_000_000_000)
  ),
  bodyLimit: setting(
    "MUSTER_BODY_LIMIT",
    "1048576",
    "Largest request body, in bytes.",
    whole(1024, 1_073_741_824)
  ),
  rateLimit: setting(
    "MUSTER_RATE_LIMIT",
    "0",
    "Requests a minute and key, counted by each replica; 0: no limit.",
    whole(0, 1_000_000_000)
  ),
  corsOrigins: setting("MUSTER_CORS_ORIGINS", "", "Origins of browser pages that may call the API.", origins),
  trustedProxies: setting(
    "MUSTER_TRUSTED_PROXIES",
    "",
    "Networks of proxies whose X-Forwarded-For is believed, such as 10.0.0.0/8.",
    networks
  ),
  shutdownGrace: setting(
    "MUSTER_SHUTDOWN_GRACE",
    "0",
    "Seconds between the word that the service ends (`readyz` answers 503) and its end: behind a load balancer, twice the time that it takes to notice.",
    number(0, 3600)
  ),
  logFormat: setting("MUSTER_LOG_FORMAT", "pretty", "Form of log lines.", oneOf("pretty", "json")),
  logLevel: setting(
    "MUSTER_LOG_LEVEL",
    "info",
    "Least level that is logged.",
    oneOf("debug", "info", "warn", "error")
  )
} as const

export type SettingValue<S> = S extends Setting<infer A> ? A : never

/** The settings' values. */
export type ServiceSettings = {
  readonly [K in Exclude<keyof typeof settings, "adminKey">]: SettingValue<(typeof settings)[K]>
} & { readonly adminKey: Option.Option<Redacted.Redacted<string>> }

const read = Effect.fnUntraced(function* <A>(one: Setting<A>) {
  // An empty variable counts as unset, as it does in compose files and unit files.
  const given = yield* Config.option(Config.String(one.name)).pipe(
    Effect.catch(() => Effect.succeed(Option.none<string>()))
  )
  const value = Option.getOrElse(
    Option.filter(given, (it) => it !== ""),
    () => one.standard
  )
  const result = one.read(value)
  if (result === undefined) {
    return yield* new InvalidSetting({ name: one.name, value: one.show?.(value) ?? value, may: one.may })
  }
  return result
})

export const readAll = <S extends Record<string, Setting<unknown>>>(all: S) =>
  // Effect.all keeps the names; that each value is of its own setting's type is lost in Object.entries.
  Effect.all(Object.fromEntries(Object.entries(all).map(([key, one]) => [key, read(one)])), {
    concurrency: 1
  }) as Effect.Effect<{ readonly [K in keyof S]: SettingValue<S[K]> }, InvalidSetting>

/** The settings of this process. */
export class ServiceConfig extends Context.Service<ServiceConfig, ServiceSettings>()(
  "muster/config/ServiceConfig"
) {
  static readonly load: Effect.Effect<ServiceSettings, InvalidSetting> = Effect.gen(function* () {
    const { adminKey, ...plain } = settings
    const key = yield* read(adminKey)
    const values = yield* readAll(plain)
    return { ...values, adminKey: key === "" ? Option.none() : Option.some(Redacted.make(key)) }
  })

  static readonly layer = Layer.effect(ServiceConfig, ServiceConfig.load)
}
