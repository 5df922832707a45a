/** One WebSocket of the service, opened with a ticket: the key is in no address. */
import { key, post } from "./http.ts"

/** Why a stream has ended. */
export type Ending =
  | { readonly kind: "expired" }
  | { readonly kind: "refused"; readonly detail: string }
  | { readonly kind: "broken" }

export interface OpenStream {
  readonly close: () => void
  /** Sends a text; returns false unless the stream is open. */
  readonly send: (text: string) => boolean
}

export interface StreamHandlers {
  readonly onOpen?: () => void
  readonly onMessage: (text: string) => void
  /** Called once, unless the page has closed the stream. */
  readonly onEnd: (ending: Ending) => void
}

const socketAddress = (path: string, ticket: string): string => {
  const url = new URL(path, location.href)
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:"
  url.searchParams.set("ticket", ticket)
  return url.href
}

/** Whether the service would refuse a repetition, too: not after a timeout, a missing upgrade or an exhausted limit. */
const isFinal = (status: number): boolean =>
  status >= 400 && status < 500 && status !== 408 && status !== 426 && status !== 429

const HANDSHAKE = 20_000

/** Asks for the reason of a handshake that failed, which browsers do not show. */
const reasonOf = async (probe: string): Promise<Ending> => {
  const stop = new AbortController()
  try {
    const response = await fetch(probe, {
      headers: { authorization: `Bearer ${key.value ?? ""}` },
      signal: AbortSignal.any([stop.signal, AbortSignal.timeout(10_000)])
    })
    if (!isFinal(response.status)) return { kind: "broken" }
    if (response.status === 410) return { kind: "expired" }
    const { detail } = (await response.json()) as { readonly detail?: string }
    return { kind: "refused", detail: detail ?? `The service returned ${response.status}.` }
  } catch {
    return { kind: "broken" }
  } finally {
    stop.abort()
  }
}

/** Opens a stream. A GET of `probe` fails as the handshake does, and so gives its reason. */
export const openStream = (path: string, probe: string, handlers: StreamHandlers): OpenStream => {
  let socket: WebSocket | undefined
  let isClosed = false
  const end = (ending: Ending) => {
    if (isClosed) return
    isClosed = true
    handlers.onEnd(ending)
  }
  const start = async () => {
    const ticket = await post<{ readonly ticket: string }>("/api/events/tickets")
    if (isClosed) return
    if (!ticket.ok) {
      return end(isFinal(ticket.code) ? { kind: "refused", detail: ticket.detail } : { kind: "broken" })
    }
    let hasOpened = false
    socket = new WebSocket(socketAddress(path, ticket.body.ticket))
    const opening = socket
    const late = setTimeout(() => opening.close(), HANDSHAKE)
    socket.addEventListener("open", () => {
      hasOpened = true
      clearTimeout(late)
      handlers.onOpen?.()
    })
    socket.addEventListener("message", ({ data }) => handlers.onMessage(String(data)))
    socket.addEventListener("close", ({ code }) => {
      clearTimeout(late)
      if (code === 1008) return end({ kind: "refused", detail: "The key is no longer valid." })
      if (hasOpened) return end({ kind: "broken" })
      if (!isClosed) void reasonOf(probe).then(end)
    })
  }
  void start()
  return {
    close: () => {
      isClosed = true
      socket?.close()
    },
    send: (text) => {
      if (socket?.readyState !== WebSocket.OPEN) return false
      socket.send(text)
      return true
    }
  }
}

/** Milliseconds before the attempt with this number: from 0.25 s to 10 s, half of it random. */
export const pauseBefore = (attempt: number): number => {
  const whole = Math.min(10_000, 250 * 2 ** attempt)
  return whole / 2 + (Math.random() * whole) / 2
}
