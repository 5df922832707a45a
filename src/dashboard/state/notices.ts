/** Short messages about what an action has led to; assistive technology reads them. */
import { signal } from "@preact/signals"
import type { Failure, Reply } from "../api/http.ts"

export interface Notice {
  readonly id: number
  readonly kind: "done" | "failed"
  readonly text: string
  readonly detail: string
}

/** Milliseconds for which a success stays; failures stay until they are closed. */
const STAY = 5000

export const notices = signal<ReadonlyArray<Notice>>([])
/** A text for assistive technology alone. */
export const announcement = signal("")

let last = 0

export const closeNotice = (id: number): void => {
  notices.value = notices.value.filter((notice) => notice.id !== id)
}

const add = (kind: Notice["kind"], text: string, detail: string): void => {
  const id = ++last
  notices.value = [...notices.value.slice(-3), { id, kind, text, detail }]
  if (kind === "done") setTimeout(() => closeNotice(id), STAY)
}

export const done = (text: string, detail = ""): void => add("done", text, detail)
export const failed = (text: string, { detail, hint }: Pick<Failure, "detail" | "hint">): void =>
  add("failed", text, `${detail} ${hint}`.trim())

/** Says what came of a request; returns whether it succeeded. @param detailOf what else to say of its answer */
export const tell = async <A>(
  reply: Promise<Reply<A>>,
  fine: string,
  refused: string,
  detailOf: (body: A) => string = () => ""
): Promise<boolean> => {
  const came = await reply
  if (came.ok) done(fine, detailOf(came.body))
  else failed(refused, came)
  return came.ok
}

export const announce = (text: string): void => {
  announcement.value = text
}
