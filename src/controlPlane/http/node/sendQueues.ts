/** The bytes that the kernel has taken for peers, which have not acknowledged them. */
import { readlinkSync } from "node:fs"
import { readFile } from "node:fs/promises"
import type { Socket } from "node:net"
import { Effect } from "effect"

/** Columns of `/proc/net/tcp`. */
const [QUEUES, INODE] = [4, 9]

const inodeOf = (socket: Socket): string | undefined => {
  // The types of Node.js do not have the handle of a socket.
  const { fd = -1 } = (socket as { readonly _handle?: { readonly fd?: number } | null })._handle ?? {}
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1]
  } catch {
    return undefined
  }
}

const table = (path: string) =>
  Effect.orElseSucceed(
    Effect.tryPromise(() => readFile(path, "latin1")),
    () => ""
  )

/** Returns the unacknowledged bytes of each of some connections, as far as the kernel shows them. */
export const sendQueues = Effect.fnUntraced(function* (sockets: ReadonlyArray<Socket>) {
  const byInode = new Map(sockets.map((socket) => [inodeOf(socket), socket]))
  const queues = new Map<Socket, number>()
  if (sockets.length === 0) return queues
  for (const text of [yield* table("/proc/net/tcp"), yield* table("/proc/net/tcp6")]) {
    for (const line of text.split("\n")) {
      const columns = line.trim().split(/\s+/)
      const socket = byInode.get(columns[INODE])
      if (socket !== undefined) queues.set(socket, Number.parseInt(columns[QUEUES] ?? "", 16))
    }
  }
  return queues
})
