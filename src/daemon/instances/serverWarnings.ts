/** The warnings of a server: what its definition promises and its run does not keep. */
import { Effect } from "effect"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { ServerWarning } from "../../contract/domain/Server.ts"
import type { LimitName, Run } from "../runtime/Runtime.ts"

const ANY = ["0.0.0.0", "::"]
const NO_LIMIT: ReadonlyArray<unknown> = [0, -1, ""]

/** Returns the warning of a server that listens on all addresses of the host, though it has been given one. */
export const addressWarning = Effect.fnUntraced(function* (
  { allocations: { default: main, mappings } }: Pick<ServerSpec, "allocations">,
  run: Run
) {
  const given = [main.ip, ...Object.keys(mappings)]
  if (run.boundToAll === undefined || given.some((ip) => ANY.includes(ip))) return undefined
  const own = new Set([main.port, ...Object.values(mappings).flat()])
  // Any client has UDP sockets on all addresses.
  const bound = (yield* run.boundToAll).filter(({ port, udp }) => !udp || own.has(port))
  if (bound.length === 0) return undefined
  const ports = bound
    .map(({ port, udp }) => `${udp ? "UDP" : "TCP"} ${port}`)
    .toSorted()
    .join(", ")
  return {
    code: "listens_on_all_addresses",
    detail: `the server listens on all addresses of the node (${ports}), not only on ${main.ip}: set the address in its configuration`
  } satisfies ServerWarning
})

export const serverWarnings = Effect.fnUntraced(function* (spec: ServerSpec, run: Run | undefined) {
  if (run === undefined) return []
  const { limits } = spec.definition
  const isSet = (name: LimitName) => limits[name] !== undefined && !NO_LIMIT.includes(limits[name])
  const missing = (run.notEnforced ?? []).filter(isSet)
  const warnings: Array<ServerWarning> =
    missing.length === 0
      ? []
      : [{ code: "limits_not_enforced", detail: `the node does not enforce ${missing.join(", ")}` }]
  const address = yield* addressWarning(spec, run)
  return address === undefined ? warnings : [...warnings, address]
})
