import { Effect } from "effect"
import { type Allocations, portText } from "../../contract/domain/Allocation.ts"
import { type ControlPlaneError, ControlPlaneUnavailable } from "../../contract/nodeApi/ControlPlane.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import type { FileSources } from "../files/InstanceFiles.ts"
import { type Busy, busyPorts, busyText } from "../host/busyPorts.ts"
import type { ServerFile, ServerState } from "../state/ServerFile.ts"
import type { Uplink } from "../uplink/ReportOutbox.ts"
import { refusals } from "./refusals.ts"

/** Replacements of one start: other programs may have the new ports, too. */
const ROUNDS = 5
const TIMEOUT = "5 seconds"

const noAnswer = new ControlPlaneUnavailable({ detail: "the control plane did not answer in time" })

const portsOf = ({ mappings }: Allocations) =>
  Object.entries(mappings).flatMap(([ip, ports]) => ports.map((port) => ({ ip, port })))

const answered = ({ ports_asked: _, ...state }: ServerState): ServerState => state

const reasonOf = (error: ControlPlaneError) =>
  error._tag === "RegistrationRequired" ? "the node is not registered" : error.detail

/** Returns the ports that changed: `10.0.0.7:25565 to 10.0.0.7:25570`. */
const changesOf = (before: Allocations, after: Allocations) => {
  const now = portsOf(after)
  return portsOf(before).flatMap((port, place) => {
    const other = now[place]
    return other === undefined || portText(other) === portText(port)
      ? []
      : [`${portText(port)} to ${portText(other)}`]
  })
}

export interface PortsOptions {
  readonly file: ServerFile
  readonly folder: string
  readonly sources: FileSources
  readonly replacePorts: Uplink["replacePorts"]
}

/**
 * Replaces the ports of a server that other programs of the host have, before the server starts: the control plane
 * reserves others. The question is recorded first, so that a daemon that was killed meanwhile asks again.
 */
export const ensurePorts = Effect.fnUntraced(function* ({
  file,
  folder,
  replacePorts,
  sources
}: PortsOptions) {
  const { refused } = refusals(sources)
  const { id } = file.get().spec

  const refuse = (busy: ReadonlyArray<Busy>, reason: string) =>
    busy.length === 0
      ? refused(
          409,
          `the control plane must confirm the ports of the server first: ${reason}`,
          "Start the server once its node is connected."
        )
      : refused(
          409,
          `${busyText(busy)}, and the server has no other port: ${reason}`,
          "Stop that program or give the node more ports, then start the server."
        )

  for (let round = 0; ; round++) {
    const { ports_asked, spec } = file.get()
    const busy = yield* busyPorts(portsOf(spec.allocations))
    if (busy.length === 0 && ports_asked !== true) return
    if (round === ROUNDS) return yield* refuse(busy, `${ROUNDS} others are taken, too`)
    yield* file.update((state) => ({ ...state, ports_asked: true }))
    const taken = busy.map(({ ip, port }) => ({ ip, port }))
    const allocations = yield* replacePorts(id, taken).pipe(
      Effect.timeoutOrElse({ duration: TIMEOUT, orElse: () => Effect.fail(noAnswer) }),
      Effect.tapError((error) =>
        // Nothing has changed; an earlier question may have changed the ports.
        error._tag === "ControlPlaneUnavailable" && error.refuses === "message" && ports_asked !== true
          ? file.update(answered)
          : Effect.void
      ),
      Effect.mapError((error) => refuse(busy, reasonOf(error)))
    )
    yield* file.update((state) => ({ ...answered(state), spec: { ...state.spec, allocations } }))
    const changes = changesOf(spec.allocations, allocations)
    if (changes.length === 0) continue
    if (busy.length > 0) yield* Effect.logWarning(`${busyText(busy)}: the server gets other ports`)
    yield* Effect.catch(
      appendConsoleLine(folder, `another program has a port of the server: ${changes.join(", ")}`),
      (error) => Effect.logWarning(error.message)
    )
  }
})
