import { post, probe } from "../../api/http.ts"
import { failed } from "../../state/notices.ts"
import { filesRoute } from "./fileApi.ts"

/**
 * Lets the browser store what an address has, with a ticket: nothing is held in memory, and the key is in no address.
 * @param addressOf returns the address with a ticket, or without one
 */
export const storeAddress = async (addressOf: (ticket?: string) => string): Promise<void> => {
  // It fails as the download would, whose reason browsers do not show.
  const known = await probe(addressOf())
  if (!known.ok) return failed("Not downloaded", known)
  const issued = await post<{ readonly ticket: string }>("/api/events/tickets")
  if (!issued.ok) return failed("Not downloaded", issued)
  const link = document.createElement("a")
  link.href = addressOf(issued.body.ticket)
  link.download = ""
  link.click()
}

export const downloadFile = (id: string, path: string): Promise<void> =>
  storeAddress((ticket) => filesRoute(id, "/content", { path, ticket }))

export const downloadArchive = (id: string, path: ReadonlyArray<string>): Promise<void> =>
  storeAddress((ticket) => filesRoute(id, "/archive", { path, format: "zip", ticket }))
