/** Requests to the service, with the key of this tab. */

import { signal } from "@preact/signals"
import { useEffect, useState } from "preact/hooks"
import { withActions } from "../dom/routeActions.ts"

/** The item of sessionStorage with the key: it ends with the tab, and no address has it. */
const ITEM = "muster.key"

/** Milliseconds after which most requests count as failed. */
const TIMEOUT = 40_000

/** The key, unless the page is signed out. */
export const key = signal<string | undefined>(sessionStorage.getItem(ITEM) ?? undefined)

/** Why the last session ended, for the sign-in form. */
export const endedBecause = signal("")

export const rememberKey = (text: string): void => {
  sessionStorage.setItem(ITEM, text)
  key.value = text
}

export const forgetKey = (reason: string): void => {
  sessionStorage.removeItem(ITEM)
  endedBecause.value = reason
  key.value = undefined
}

export interface Failure {
  readonly ok: false
  readonly code: number
  readonly detail: string
  readonly hint: string
}

export interface Success<A> {
  readonly ok: true
  readonly code: number
  readonly body: A
  readonly headers: Headers
}

export type Reply<A> = Success<A> | Failure

export const parsed = (text: string): unknown => {
  if (text === "") return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns texts as sentences that can follow each other. */
const sentences = (detail: string, hint: string) => ({
  detail: hint === "" || /[.!?:]$/.test(detail) ? detail : `${detail}.`,
  hint: `${hint.charAt(0).toUpperCase()}${hint.slice(1)}`
})

export const failureOf = (status: number, body: unknown): Failure => {
  const { detail, hint } = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>
  return {
    ok: false,
    code: status,
    ...sentences(
      typeof detail === "string" ? withActions(detail) : `The service returned ${status}.`,
      typeof hint === "string" ? withActions(hint) : ""
    )
  }
}

const unreachable: Failure = {
  ok: false,
  code: 0,
  detail: "The service cannot be reached.",
  hint: "The dashboard tries again by itself."
}

export interface RequestOptions {
  readonly body?: unknown
  /** A text that is the body as it is, in place of JSON. */
  readonly text?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
  readonly key?: string
  /** Milliseconds after which the request counts as failed. */
  readonly timeout?: number
}

/** Whether a list has a further page. */
export const hasNext = ({ headers }: Success<unknown>): boolean =>
  headers.get("link")?.includes('rel="next"') === true

type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE"

const bodyOf = ({ body, text }: RequestOptions): Pick<RequestInit, "body" | "headers"> => {
  if (text !== undefined) return { body: text, headers: { "content-type": "application/octet-stream" } }
  return body === undefined
    ? {}
    : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }
}

/** Sends a request and reads its response; a 401 for the key of the tab ends the session. */
const answered = async <A>(
  method: Method,
  path: string,
  options: RequestOptions,
  read: (response: Response) => Promise<A>
): Promise<Reply<A>> => {
  const used = options.key ?? key.value ?? ""
  const timeout = AbortSignal.timeout(options.timeout ?? TIMEOUT)
  const { headers, ...body } = bodyOf(options)
  try {
    const response = await fetch(path, {
      method,
      headers: { authorization: `Bearer ${used}`, ...headers, ...options.headers },
      signal: options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]),
      ...body
    })
    if (response.ok) {
      return { ok: true, code: response.status, body: await read(response), headers: response.headers }
    }
    const failure = failureOf(response.status, parsed(await response.text()))
    if (response.status === 401 && used === key.value) forgetKey(failure.detail)
    return failure
  } catch {
    return unreachable
  }
}

export const request = <A>(method: Method, path: string, options: RequestOptions = {}): Promise<Reply<A>> =>
  // The service that has sent this page answers in the form of its contract.
  answered(method, path, options, async (response) => parsed(await response.text()) as A)

/** Reads a response as bytes. */
export const getBytes = (path: string, signal: AbortSignal): Promise<Reply<ArrayBuffer>> =>
  answered("GET", path, { signal }, (response) => response.arrayBuffer())

/** Reads the head of a response alone. A refusal has its reason. */
export const probe = (path: string): Promise<Reply<void>> =>
  answered("GET", path, {}, async (response) => response.body?.cancel())

export const get = <A>(path: string, signal?: AbortSignal): Promise<Reply<A>> =>
  request<A>("GET", path, signal === undefined ? {} : { signal })

export const post = <A>(path: string, body?: unknown): Promise<Reply<A>> =>
  request<A>("POST", path, body === undefined ? {} : { body })

export const segment = encodeURIComponent

interface Again {
  /** Whether a change asks for another thing, for which the earlier reply does not stand. */
  readonly isOther?: boolean
  /** Whether a reading that fails leaves the last one. */
  readonly keepsLast?: boolean
  /** Milliseconds without a change before the request, which depends on what is typed, is sent. */
  readonly settle?: number
}

/** Sends a request while its caller is on the page, and again when `again` changes. Without `send`, nothing is sent. */
export const useReply = <A>(
  send: ((signal: AbortSignal) => Promise<Reply<A>>) | undefined,
  again: ReadonlyArray<unknown>,
  { isOther = false, keepsLast = false, settle = 0 }: Again = {}
): Reply<A> | undefined => {
  const [reply, setReply] = useState<Reply<A> | undefined>(undefined)
  useEffect(() => {
    if (isOther) setReply(undefined)
    if (send === undefined) return
    const stop = new AbortController()
    const read = async () => {
      const next = await send(stop.signal)
      // While the service cannot be reached, the page shows the last known state.
      const isKept = keepsLast || (!next.ok && next.code === 0 && settle === 0)
      if (!stop.signal.aborted)
        setReply((before) => (!next.ok && isKept && before?.ok === true ? before : next))
    }
    const timer = settle === 0 ? void read() : setTimeout(() => void read(), settle)
    return () => {
      clearTimeout(timer ?? undefined)
      stop.abort()
    }
  }, again)
  return reply
}

/** Reads a path, and again with each change of `again`. */
export const useGet = <A>(path: string, ...again: ReadonlyArray<unknown>): Reply<A> | undefined =>
  useReply<A>((signal) => get<A>(path, signal), [path, ...again])

/** As {@link useGet}; a reading that fails leaves the last one. */
export const useLast = <A>(path: string, ...again: ReadonlyArray<unknown>): Reply<A> | undefined =>
  useReply<A>((signal) => get<A>(path, signal), [path, ...again], { keepsLast: true })

/** Runs work every so many milliseconds while the page is visible, and once when it becomes visible again. */
export const whileVisible = (every: number, work: () => Promise<void>): (() => void) => {
  let timer: ReturnType<typeof setTimeout> | undefined
  let isRunning = false
  let isEnded = false
  const run = async () => {
    if (isRunning || isEnded) return
    isRunning = true
    clearTimeout(timer)
    if (!document.hidden) await work()
    isRunning = false
    if (!isEnded) timer = setTimeout(() => void run(), every)
  }
  const onVisible = () => {
    if (!document.hidden) void run()
  }
  document.addEventListener("visibilitychange", onVisible)
  timer = setTimeout(() => void run(), every)
  return () => {
    isEnded = true
    clearTimeout(timer)
    document.removeEventListener("visibilitychange", onVisible)
  }
}

/** A number that grows every so many milliseconds while the page is visible, and a function that makes it grow now. */
export const useTick = (every: number): readonly [number, () => void] => {
  const [tick, setTick] = useState(0)
  const grow = () => setTick((before) => before + 1)
  useEffect(() => whileVisible(every, async () => grow()), [every])
  return [tick, grow]
}

/** Reads a list every so many milliseconds, and when `again` is called; until it is read, `all` is empty. */
export const useList = <A>(path: string, every: number) => {
  const [tick, again] = useTick(every)
  const reply = useGet<ReadonlyArray<A>>(path, tick)
  return { reply, all: reply?.ok === true ? reply.body : [], again, tick }
}

/** Things that a list shows at first, and at most. */
const PAGE = 20
const MOST = 100

/** As {@link useList}, for a list with many things: `more` reads further ones, unless all are read. */
export const useNewest = <A>(path: string, every: number) => {
  const [limit, setLimit] = useState(PAGE)
  const list = useList<A>(`${path}${path.includes("?") ? "&" : "?"}limit=${limit}`, every)
  const hasMore = list.all.length >= limit && limit < MOST
  return { ...list, more: hasMore ? () => setLimit(MOST) : undefined }
}
