import { post, probe } from "../../api/http.ts"
import { failed } from "../../state/notices.ts"
import { filesRoute } from "./fileApi.ts"

/** Lets the browser store a file, or an archive, with a ticket: nothing is held in memory, and the key is in no address. */
const download = async (
  id: string,
  route: "/content" | "/archive",
  query: Readonly<Record<string, string | ReadonlyArray<string>>>
): Promise<void> => {
  // It fails as the download would, whose reason browsers do not show.
  const known = await probe(filesRoute(id, route, query))
  if (!known.ok) return failed("Not downloaded", known)
  const issued = await post<{ readonly ticket: string }>("/api/events/tickets")
  if (!issued.ok) return failed("Not downloaded", issued)
  const link = document.createElement("a")
  link.href = filesRoute(id, route, { ...query, ticket: issued.body.ticket })
  link.download = ""
  link.click()
}

export const downloadFile = (id: string, path: string): Promise<void> => download(id, "/content", { path })

export const downloadArchive = (id: string, path: ReadonlyArray<string>): Promise<void> =>
  download(id, "/archive", { path, format: "zip" })
