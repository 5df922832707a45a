import { signal } from "@preact/signals"
import { counted, labelTexts } from "../dom/format.ts"
import { endedBecause, forgetKey, get, type Reply, rememberKey, request, useGet, useReply } from "./http.ts"
import type { BackupTarget, Blueprint, Key, Power, QuotaLimits, QuotaUse, Right } from "./types.ts"

export interface Caller
  extends Pick<
    Key,
    "blueprints" | "labels" | "max_memory" | "max_servers" | "name" | "paths" | "scope" | "servers"
  > {
  readonly id: string
  readonly rights: ReadonlyArray<Right>
  readonly quota?: QuotaLimits & { readonly name: string; readonly used?: QuotaUse }
}

export const caller = signal<Caller | undefined>(undefined)

const SELF = "/api/keys/self"

/** Signs in; returns the reason of a failure. */
export const signIn = async (text: string): Promise<string | undefined> => {
  const reply = await request<Caller>("GET", SELF, { key: text })
  if (!reply.ok) return reply.code === 401 ? "The service does not know this key." : reply.detail
  caller.value = reply.body
  endedBecause.value = ""
  rememberKey(text)
  return undefined
}

export const resumeSession = async (): Promise<boolean> => {
  const reply = await get<Caller>(SELF)
  if (!reply.ok) {
    if (reply.code === 403) forgetKey(`${reply.detail}. ${reply.hint}`)
    return false
  }
  caller.value = reply.body
  return true
}

export const signOut = (reason = ""): void => {
  caller.value = undefined
  forgetKey(reason)
}

const isLimited = ({ blueprints, labels, servers }: Caller): boolean =>
  servers !== undefined || blueprints !== undefined || labels !== undefined

const powerRights: ReadonlyArray<string> = ["start", "stop", "restart", "kill", "pause"]

/** Returns why the key may not do this, or `undefined` if it may. The right `power` includes all power actions. */
export const whyNot = (right: Right | "drain"): string | undefined => {
  const known = caller.value
  if (known === undefined) return undefined
  const needed = right === "drain" ? "change" : right
  const has =
    known.rights.includes(needed) || (powerRights.includes(needed) && known.rights.includes("power"))
  if (!has) return `The key “${known.name}” lacks the right ${needed}.`
  if (right === "drain" && isLimited(known)) return `The key “${known.name}” is limited to some servers.`
  return right === "create" && known.servers !== undefined
    ? `The key “${known.name}” is limited to servers that exist.`
    : undefined
}

export const whyNoPower = (action: Power): string | undefined =>
  whyNot(action === "unpause" ? "pause" : action)

/** Whether the key manages keys and webhooks, and reads settings and the audit log. */
export const isAdmin = (): boolean => caller.value?.scope === "AppAdmin"

/** The limits of a quota. Each has the field of the limit, the field of the use, and a unit. */
export const amounts = [
  ["max_servers", "servers", "servers"],
  ["max_memory", "memory", "MiB"],
  ["max_cpu", "cpu", "% of CPU"],
  ["max_disk", "disk", "MB of disk"]
] as const

export const quotaText = (quota: QuotaLimits & { readonly used?: QuotaUse }): string =>
  amounts
    .flatMap(([max, use, unit]) => {
      const used = quota.used === undefined ? "" : `${quota.used[use]} of `
      return quota[max] === undefined ? [] : [`${used}${quota[max]} ${unit}`]
    })
    .join(", ")

export const limitsOf = (
  limits: Pick<Key, "blueprints" | "labels" | "max_memory" | "max_servers" | "paths" | "servers">
): ReadonlyArray<string> => {
  const { blueprints = [], labels = {}, max_memory, max_servers, paths = [], servers } = limits
  return [
    ...(servers === undefined ? [] : [counted(servers.length, "server")]),
    ...blueprints.map((id) => `blueprint ${id}`),
    ...labelTexts(labels),
    ...paths.map((folder) => `folder ${folder}`),
    ...(max_servers === undefined ? [] : [`at most ${counted(max_servers, "server")}`]),
    ...(max_memory === undefined ? [] : [`at most ${max_memory} MiB`])
  ]
}

/** Returns what the key of this tab may do. */
export const allowedTo = (known: Caller): string =>
  [
    `${known.name}, ${known.scope}`,
    ...(known.scope === "AppAdmin" ? [] : [`Rights: ${known.rights.join(", ")}`]),
    ...limitsOf(known),
    ...(known.quota === undefined ? [] : [`Quota ${known.quota.name}: ${quotaText(known.quota)}`])
  ].join(". ")

/** Reads the blueprints, of which the key may be limited to some. */
export const useBlueprints = (): Reply<ReadonlyArray<Blueprint>> | undefined => {
  const reply = useGet<{ readonly data: ReadonlyArray<Blueprint> }>("/api/blueprints?limit=1000")
  if (reply?.ok !== true) return reply
  const allowed = caller.value?.blueprints
  return {
    ...reply,
    body: reply.body.data.filter(({ metadata }) => allowed === undefined || allowed.includes(metadata.id))
  }
}

/** Reads the ids of the targets of backups, which keys of other scopes than `AppAdmin` do not see. */
export const useTargets = (): ReadonlyArray<string> | undefined => {
  const reply = useReply<ReadonlyArray<BackupTarget>>(
    isAdmin() ? (signal) => get("/api/backup-targets", signal) : undefined,
    []
  )
  return reply?.ok === true ? reply.body.map(({ id }) => id) : undefined
}
