/** The requests that no blueprint may make of the engine. Pure. */
import type { Launch } from "../Runtime.ts"
import { CONTAINER_HOME } from "./containerOptions.ts"

/** Host folders that would hide folders of the container. */
const reserved = ["/", "/dev", "/etc", "/home", "/proc", "/sys", "/tmp"]

const isBelow = (path: string, folder: string) =>
  path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`)

/**
 * Returns why a server must not be started in a container; undefined: it may. `sockets`: paths of the engine's socket,
 * which gives full control of the host.
 */
export const unsafeReason = (
  launch: Pick<Launch, "env" | "shared">,
  sockets: ReadonlyArray<string>
): string | undefined => {
  for (const [name, value] of Object.entries(launch.env)) {
    if (name === "" || /[=\0]/.test(name)) return `not the name of a variable: ${JSON.stringify(name)}`
    if (value.includes("\0")) return `the value of ${name} contains a NUL character`
  }
  for (const { path, target } of launch.shared ?? []) {
    if (sockets.some((socket) => isBelow(socket, path)))
      return `${path} is not mounted: the socket of the Docker engine is in it`
    if (target === undefined && (reserved.includes(path) || isBelow(path, CONTAINER_HOME)))
      return `${path} is not mounted: containers have their own`
  }
  return undefined
}
