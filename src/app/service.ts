import { join, resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, FileSystem, Layer, Option, Redacted, Schedule } from "effect"
import { nearest } from "../contract/domain/nearest.ts"
import { isLoopback, LOCAL_SOCKET } from "../contract/domain/transport.ts"
import { BackupTargets } from "../controlPlane/backups/BackupTargets.ts"
import { BlueprintStore } from "../controlPlane/blueprints/BlueprintStore.ts"
import { Reloads } from "../controlPlane/blueprints/Reloads.ts"
import { SHORTEST_SAFE_KEY } from "../controlPlane/keys/ApiKeys.ts"
import { ensureFirstKey, type FirstKey } from "../controlPlane/keys/firstKey.ts"
import { DaemonClient } from "../controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../controlPlane/nodes/fleet/Fleet.ts"
import { RemoteDaemons } from "../controlPlane/nodes/remote/RemoteDaemons.ts"
import { SftpLogins } from "../controlPlane/sftp/logins.ts"
import { SftpListener } from "../controlPlane/sftp/SftpListener.ts"
import { SftpServer } from "../controlPlane/sftp/SftpServer.ts"
import { Leadership } from "../controlPlane/store/Leadership.ts"
import { WebhooksFile } from "../controlPlane/webhooks/WebhooksFile.ts"
import { hostInfo } from "../daemon/host/hostInfo.ts"
import { fileForm } from "../shared/config/Setting.ts"
import { StartError } from "../shared/config/StartError.ts"
import {
  loadServiceSettings,
  type ServiceSettings,
  settings,
  settingViews
} from "../shared/config/service.ts"
import { LIMITS, openFilesIn } from "../shared/observability/observations.ts"
import { defined } from "../shared/work/defined.ts"
import { adminKeyOf, ControlPlaneLayer } from "./controlPlane.ts"
import { EmbeddedHost, EmbeddedNode } from "./embeddedNode.ts"
import { listenUrl, liveCa, liveTls, plainHttp, withPassedSocket } from "./listening.ts"
import { LoggingLayer, RecentLog } from "./logging.ts"
import { certificates, hangups, reloadOnHangup } from "./reloading.ts"
import { allSettings } from "./secretKey.ts"
import { ServiceHttp } from "./serviceHttp.ts"
import { hasEmbeddedNode, makeRoom, openDataDir, ServiceLocks, watchDataDisk } from "./storage.ts"
import { TelemetryLayer } from "./telemetry.ts"
import { version } from "./version.ts"

/** npm forwards a signal shortly after the terminal sent it. */
const SAME_KEYSTROKE_MILLIS = 500

/** Ends the process at the second SIGINT or SIGTERM. The first one starts the graceful stop elsewhere. */
const endOnSecondSignal = Effect.acquireRelease(
  Effect.sync(() => {
    let first: number | undefined
    const onSignal = (_: NodeJS.Signals, code: number) => {
      first ??= performance.now()
      if (performance.now() - first > SAME_KEYSTROKE_MILLIS) process.exit(128 + code)
    }
    process.on("SIGINT", onSignal).on("SIGTERM", onSignal)
    return onSignal
  }),
  (onSignal) => Effect.sync(() => process.off("SIGINT", onSignal).off("SIGTERM", onSignal))
)

const known = allSettings.flatMap(({ name, secret }) => (secret === true ? [name, fileForm(name)] : [name]))

/** Warns of variables that look like settings and are not: a mistyped setting is never ignored silently. */
const warnOfUnknownSettings = Effect.suspend(() =>
  Effect.forEach(
    Object.keys(process.env).filter((name) => name.startsWith("MUSTER_") && !known.includes(name)),
    (name) => {
      const meant = nearest(name, known)
      return Effect.logWarning(
        `${name} is not a setting${meant === undefined ? "; docs/settings.md lists them" : `; did you mean ${meant}?`}`
      )
    },
    { discard: true }
  )
)

/** The limit of open files of this process, if the system reports it. */
const openFiles = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  return openFilesIn(yield* Effect.orElseSucceed(fs.readFileString(LIMITS), () => ""))
})

/** Returns the limits of streams. Each stream is an open file, and half of the open files stay for other uses. */
export const streamLimits = Effect.fnUntraced(function* (settings: ServiceSettings) {
  const { streams: wanted, streamsPerKey: perKey } = settings
  const files = yield* openFiles
  const total = Math.min(wanted, Math.floor((files ?? Number.POSITIVE_INFINITY) / 2))
  if (total < wanted) {
    yield* Effect.logWarning(
      `${total} streams can be open, not ${wanted}: the process may open ${files} files. Raise the limit (LimitNOFILE, ulimit -n), or set MUSTER_STREAMS`
    )
  }
  return { perKey, total }
})

/** A service that has just ended is counted for a moment. */
const AGAIN = Schedule.max([Schedule.spaced("250 millis"), Schedule.recurs(20)])

const DO_INSTEAD = "set MUSTER_EMBEDDED_NODE=false and run `muster node` on the machine of that node"

/**
 * Refuses to start beside another service if either has an embedded node, which only its own service reaches.
 * @error StartError such a service runs
 */
const refuseUnreachableNodes = (settings: ServiceSettings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { othersServe } = yield* Leadership
      const daemons = yield* DaemonClient
      const fleet = yield* Fleet
      const own = hasEmbeddedNode(settings)
      const inAnother = () =>
        [...fleet.nodes].find(
          ({ connected, id, record }) => connected && record?.embedded === true && !daemons.isAttached(id)
        )
      const refusal = () => {
        if (own)
          return `other services run on this database, and cannot reach the node in this one: ${DO_INSTEAD}`
        const node = inAnother()
        return (
          node &&
          `node ${node.id} is in another service on this database, which alone reaches it: there, ${DO_INSTEAD}`
        )
      }
      const why = Effect.gen(function* () {
        const reason = refusal()
        return reason !== undefined && (yield* othersServe) ? reason : undefined
      })
      const still = yield* Effect.repeat(why, { schedule: AGAIN, while: (reason) => reason !== undefined })
      if (still !== undefined) return yield* new StartError({ message: still })
    })
  )

const explainEmpty = Effect.fnUntraced(function* ({ blueprintsDir }: ServiceSettings) {
  const { list } = yield* BlueprintStore
  if ((yield* list).length > 0) return
  yield* Effect.logWarning(
    `no blueprints in ${resolve(blueprintsDir)}: write some, or run \`muster init\` for examples; then run \`kill -HUP ${process.pid}\``
  )
})

const quoted = (word: string) => (/^[\w./:@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)

/** Returns a first command for another terminal, with the setting that it needs there. */
const commandFor = ({ dataDir }: ServiceSettings): string => {
  const folder = dataDir === settings.dataDir.standard ? "" : `MUSTER_DATA_DIR=${quoted(resolve(dataDir))} `
  return `${folder}muster servers list`
}

/** Logs the addresses, the admin key's file and a first command, once the service answers all requests. */
const announce = Effect.fnUntraced(function* (
  settings: ServiceSettings,
  first: FirstKey,
  scheme: "http" | "https"
) {
  yield* Effect.flatMap(EmbeddedNode, ({ connected }) => connected)
  const url = yield* listenUrl(scheme, settings)
  yield* Effect.logInfo(`Muster ${version} listens on ${url}`)
  if (first._tag !== "NotNeeded") yield* Effect.logInfo(first.message)
  const key = first.path === undefined ? "" : `, sign in with the key in ${first.path}`
  yield* Effect.logInfo(`Dashboard: ${url}/dashboard${key}`)
  yield* Effect.logInfo(`Command line: ${commandFor(settings)}`)
  yield* Effect.logInfo(`All routes: ${url}/docs`)
  yield* explainEmpty(settings)
})

const warnings = Effect.fnUntraced(function* (settings: ServiceSettings) {
  yield* warnOfUnknownSettings
  if (Option.isSome(settings.adminKey)) {
    const { length } = Redacted.value(settings.adminKey.value)
    if (length < SHORTEST_SAFE_KEY) {
      yield* Effect.logWarning(
        `APP_ADMIN_API_KEY has ${length} characters: use at least ${SHORTEST_SAFE_KEY}, or \`muster keys create\`. An address with too many failed authentications cannot use it`
      )
    }
  }
})

/** Runs the service until it is interrupted, with an embedded node unless the settings disable it. */
const runService = Effect.fnUntraced(function* (given: ServiceSettings) {
  const settings = yield* withPassedSocket(given)
  const recent = yield* RecentLog
  yield* endOnSecondSignal
  const hungUp = yield* hangups
  yield* warnings(settings)
  const dataDir = yield* openDataDir(settings)
  yield* makeRoom(settings, dataDir)
  yield* watchDataDisk(dataDir)
  const tls = yield* liveTls(
    { cert: "MUSTER_TLS_CERT", key: "MUSTER_TLS_KEY" },
    { cert: settings.tlsCert, key: settings.tlsKey }
  )
  if (tls === undefined && !isLoopback(settings.host)) {
    yield* plainHttp(
      settings.requireTls,
      `the service listens on ${settings.host} without TLS`,
      "set MUSTER_TLS_CERT and MUSTER_TLS_KEY, or set MUSTER_HOST to 127.0.0.1 and put a TLS proxy before the service"
    )
  }
  const ca = yield* liveCa("MUSTER_NODE_CA", settings.nodeCa)
  const certificate = yield* liveTls(
    { cert: "MUSTER_NODE_CLIENT_CERT", key: "MUSTER_NODE_CLIENT_KEY" },
    { cert: settings.nodeClientCert, key: settings.nodeClientKey }
  )
  const nodeTls = {
    ...defined({ ca, certificate })
  }
  const http = ServiceHttp({
    settings,
    fd: settings.fd,
    tls,
    localSocket: join(dataDir, LOCAL_SOCKET),
    system: { version, system: hostInfo() },
    inspection: { settings: yield* settingViews, log: recent.lines },
    streams: yield* Effect.provide(streamLimits(settings), NodeServices.layer)
  })
  // The key exists before the service responds.
  const answering = Layer.unwrap(
    Effect.map(ensureFirstKey({ dataDir, ...adminKeyOf(settings) }), (first) =>
      Layer.effectDiscard(announce(settings, first, tls === undefined ? "http" : "https")).pipe(
        Layer.provideMerge(
          Layer.effectDiscard(Effect.flatMap(RemoteDaemons, ({ recall }) => Effect.forkScoped(recall)))
        ),
        Layer.provideMerge(http)
      )
    )
  )
  const reloading = Layer.effectDiscard(
    Effect.flatMap(
      Effect.all([Reloads, WebhooksFile, BackupTargets]),
      ([{ blueprints, software }, webhooks, targets]) =>
        reloadOnHangup(hungUp, [
          { name: "software", reload: Effect.as(software, true) },
          { name: "blueprints", reload: Effect.as(blueprints, true) },
          ...(settings.webhooks === "" ? [] : [{ name: "webhooks", reload: webhooks.reload }]),
          ...(settings.backupTargets === "" ? [] : [{ name: "targets of backups", reload: targets.reload }]),
          ...certificates(tls, ca, certificate)
        ])
    )
  )
  const controlPlane = ControlPlaneLayer(settings, dataDir, nodeTls)
  const checked = refuseUnreachableNodes(settings).pipe(Layer.provideMerge(controlPlane))
  const withNode = hasEmbeddedNode(settings)
    ? EmbeddedNode.layer(settings).pipe(
        Layer.provideMerge(Layer.merge(checked, EmbeddedHost.layer(settings, dataDir)))
      )
    : Layer.merge(checked, EmbeddedNode.layerNone)
  const sftp = Option.match(settings.sftpPort, {
    onNone: () => SftpListener.layerOff,
    onSome: (port) =>
      SftpServer({
        host: settings.sftpHost === "" ? settings.host : settings.sftpHost,
        port,
        announced: settings.sftpAddress
      }).pipe(Layer.provide(SftpLogins.layer))
  })
  const app = Layer.mergeAll(answering, reloading).pipe(
    Layer.provideMerge(sftp),
    Layer.provideMerge(withNode),
    Layer.provide(ServiceLocks(settings, dataDir)),
    Layer.provide(NodeServices.layer)
  )
  return yield* Layer.launch(app).pipe(Effect.onInterrupt(() => Effect.logInfo("the service has ended")))
}, Effect.scoped)

/** The program of `muster serve`. */
export const service = Effect.gen(function* () {
  const loaded = yield* loadServiceSettings
  const { add } = yield* RecentLog
  yield* runService(loaded).pipe(
    Effect.provide(TelemetryLayer("muster", loaded)),
    Effect.provide(LoggingLayer(loaded, add))
  )
}).pipe(Effect.provide(RecentLog.layer))
