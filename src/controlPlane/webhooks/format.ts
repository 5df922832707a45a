/** The bodies of deliveries. */

import type { WebhookFormat } from "../../contract/domain/Webhook.ts"
import type { EncodedEvent } from "../events/EncodedEvent.ts"

export interface Subject {
  readonly event: Pick<EncodedEvent, "blueprint_id" | "server_id" | "textWithCursor" | "topic">
  readonly payload: unknown
  /** Unset if there is no server, or its name is not known. */
  readonly name: string | undefined
}

const has = <K extends string>(value: unknown, key: K): value is Record<K, unknown> =>
  typeof value === "object" && value !== null && key in value

const sentence = ({ event: { blueprint_id, server_id, topic }, name, payload }: Subject): string => {
  const server =
    name === undefined ? `${blueprint_id} (${server_id})` : `${name} (${blueprint_id}, ${server_id})`
  if (topic === "crash")
    return `${server} crashed: ${has(payload, "reason") ? payload.reason : "unknown reason"}`
  if (topic === "deleted") return `${server} was deleted`
  if (topic === "install") {
    const reason = has(payload, "reason") ? `: ${payload.reason}` : ""
    return `${server}: installation ${has(payload, "phase") ? payload.phase : "changed"}${reason}`
  }
  if (topic === "expiring") return `${server} is deleted at ${payload}`
  if (topic === "problem")
    return has(payload, "detail")
      ? `${server} has a problem: ${payload.detail}`
      : `${server} has no problem now`
  return `${server} is ${payload}`
}

const discordText = (text: string): string => text.replace(/[\\*_~`|>#@[\]()<:-]/g, "\\$&").slice(0, 1900)

const slackText = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

/** Returns the JSON body of a message in a chat, without mentions. */
export const chatBody = (format: Exclude<WebhookFormat, "json">, text: string): string =>
  format === "discord"
    ? JSON.stringify({ content: discordText(text), allowed_mentions: { parse: [] } })
    : JSON.stringify({ text: slackText(text) })

/** Returns the JSON body of a delivery (spec 7). */
export const bodyOf = (format: WebhookFormat, subject: Subject): string =>
  format === "json" ? subject.event.textWithCursor : chatBody(format, sentence(subject))
