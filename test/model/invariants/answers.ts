import { isEphemeral } from "../definitions.ts"
import {
  type ClientRequest,
  type Disturbance,
  type History,
  type Invariant,
  type Operation,
  overlaps
} from "../History.ts"
import { ABANDONED } from "../http.ts"
import { withExpiry } from "./changes.ts"
import { undeleted } from "./kept.ts"

/** Allowed statuses of each request, during any fault (spec 1.4). */
const allowed: Readonly<Record<ClientRequest["kind"], ReadonlyArray<number>>> = {
  create: [202, 503],
  undelete: [202, 404, 409, 502, 503],
  "back-up": [202, 404, 409, 502, 503],
  restore: [202, 404, 409, 502, 503],
  verify: [202, 404, 409, 502, 503],
  "delete-backup": [204, 404, 409, 502, 503],
  "read-backup": [200, 404, 409, 502, 503],
  "list-backups": [200, 503],
  "list-deleted": [200, 503],
  cancel: [202, 404, 409, 503],
  schedule: [201, 404, 409, 503],
  "run-schedule": [202, 404, 409, 503],
  "pause-schedule": [200, 404, 503],
  "delete-schedule": [200, 404, 409, 503],
  "create-conflict": [409, 503],
  delete: [200, 404, 409, 502, 503],
  power: [200, 404, 409, 502, 503],
  "power-many": [200, 503],
  "delete-many": [200, 503],
  patch: [200, 404, 409, 502, 503],
  upgrade: [202, 404, 409, 502, 503],
  "roll-out": [201, 404, 409, 503],
  "change-rollout": [200, 404, 409, 503],
  reinstall: [202, 404, 409, 502, 503],
  reset: [202, 404, 409, 502, 503],
  commands: [204, 404, 409, 502, 503],
  drain: [200, 503],
  reload: [200, 503],
  ticket: [201, 503],
  list: [200],
  "get-server": [200, 404],
  "get-node": [200]
}

/** Reads that call the node, or the database if the server is not cached. */
const beyondMemory: Readonly<Record<string, ReadonlyArray<number>>> = {
  "": [],
  "/status": [503],
  "/install": [503],
  "/logs": [409, 502, 503],
  "/stats": [409, 502, 503]
}

/** Whether a creation needs a backup, which may be gone. */
const isFromBackup = (requested: ClientRequest): boolean =>
  requested.kind === "create" && requested.body.from_backup !== undefined

const allows = (requested: ClientRequest, status: number): boolean =>
  allowed[requested.kind].includes(status) ||
  (isFromBackup(requested) && (status === 404 || status === 409)) ||
  (requested.kind === "get-server" && beyondMemory[requested.what]?.includes(status) === true)

const serverOf = (requested: ClientRequest): string | undefined =>
  "server" in requested ? requested.server : undefined

const brief = (operation: Operation): string => {
  const { requested, client, ended, n, replica, sent, status } = operation
  const answer =
    status === undefined ? `no response (${operation.lost})` : `${status} ${operation.detail ?? ""}`
  return `operation ${n} (${client} at replica ${replica}, ${sent}-${ended} ms) ${JSON.stringify(requested)}: ${answer}`
}

/** Maximum time of recovery after the database is back, in ms. */
const RECOVERY_MILLIS = 5_000

const hits = (disturbance: Disturbance, replica: number): boolean =>
  disturbance.target === undefined || disturbance.target === replica

/** Every response has an allowed status and form, and every request to a running replica gets one. */
export const answers: Invariant = {
  name: "every response is documented",
  problems: ({ disturbances, operations }) => {
    const ofReplicas = disturbances.filter(({ what }) => what === "replica")
    return operations.flatMap((operation) => {
      if (operation.malformed !== undefined) return [`${operation.malformed}: ${brief(operation)}`]
      if (operation.status !== undefined) {
        return allows(operation.requested, operation.status) ? [] : [brief(operation)]
      }
      if (operation.lost === ABANDONED) return []
      const isBroken = ofReplicas.some((it) => hits(it, operation.replica) && overlaps(operation, it))
      return isBroken ? [] : [`the replica was running: ${brief(operation)}`]
    })
  }
}

/** The first acknowledgement and the first request for deletion of each server. */
const lifetimes = (history: History) => {
  const created = new Map<string, Operation>()
  const removed = new Map<string, Operation>()
  for (const operation of history.operations) {
    const { requested, id, status } = operation
    if (requested.kind === "create" && status === 202 && id !== undefined) {
      const known = created.get(id)
      if (known === undefined || operation.ended < known.ended) created.set(id, operation)
    }
    if (requested.kind === "delete") {
      const known = removed.get(requested.server)
      if (known === undefined || operation.sent < known.sent) removed.set(requested.server, operation)
    }
  }
  return { created, removed }
}

/**
 * Every replica finds an acknowledged server, unless the replica is disconnected from the database and has not received
 * it.
 */
export const found: Invariant = {
  name: "every acknowledged server is found",
  problems: (history) => {
    const { created, removed } = lifetimes(history)
    const mayExpire = withExpiry(history)
    const isGone = (id: string, until: number) => {
      const requested = removed.get(id)
      const creation = created.get(id)?.requested
      return (
        (requested !== undefined && requested.sent <= until) ||
        (creation?.kind === "create" && isEphemeral(creation.body)) ||
        mayExpire.has(id)
      )
    }
    // A disconnected replica has some time to recover.
    const databases = history.disturbances
      .filter(({ what }) => what !== "node" && what !== "clock")
      .map((it) => ({ ...it, to: it.to + RECOVERY_MILLIS }))
    return history.operations.flatMap((operation) => {
      const server = serverOf(operation.requested)
      const isCutOff = () => databases.some((it) => hits(it, operation.replica) && overlaps(operation, it))
      // A restore may lack its backup.
      const isServer = operation.detail?.startsWith("backup") !== true
      if (operation.status === 404 && server !== undefined && isServer) {
        const creation = created.get(server)
        if (creation === undefined || creation.ended > operation.sent || isGone(server, operation.ended))
          return []
        return isCutOff() && creation.replica !== operation.replica
          ? []
          : [`${server} was acknowledged by ${brief(creation)}; ${brief(operation)}`]
      }
      if (operation.ids === undefined) return []
      const listed = new Set(operation.ids)
      return [...created.values()].flatMap((creation) => {
        const id = creation.id ?? ""
        const before = creation.ended <= operation.sent && creation.replica === operation.replica
        if (!before || listed.has(id) || isGone(id, operation.ended)) return []
        return [`${id} was acknowledged by ${brief(creation)} and is not listed: ${brief(operation)}`]
      })
    })
  }
}

/** A replica that has acknowledged a deletion does not return the server. */
export const gone: Invariant = {
  name: "every deleted server stays deleted",
  problems: ({ operations }) => {
    const mayReturn = undeleted({ operations })
    const removals = operations.filter(
      ({ requested, status }) =>
        requested.kind === "delete" && status === 200 && !mayReturn.has(requested.server)
    )
    const removed = Map.groupBy(removals, ({ requested, replica }) => `${replica} ${serverOf(requested)}`)
    return operations.flatMap((operation) => {
      const { requested, ids, replica, sent, status } = operation
      const isBefore = (removal: Operation) => removal.ended <= sent
      if (requested.kind === "get-server" && status === 200) {
        const removal = removed.get(`${replica} ${requested.server}`)?.find(isBefore)
        return removal === undefined ? [] : [`${brief(removal)}; ${brief(operation)}`]
      }
      const all = (ids ?? []).flatMap((id) => removed.get(`${replica} ${id}`)?.filter(isBefore) ?? [])
      return all.map((removal) => `${brief(removal)}; listed by ${brief(operation)}`)
    })
  }
}
