/** What is different for a server that runs in a container. */
import type { RuntimeKind } from "../../domain/Node.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"

/**
 * The configuration as the server's process sees it: a container has an address of its own, at which the engine
 * hands in what comes to the allocated one, so that the server listens on all it has.
 */
export const seenFrom = (kind: RuntimeKind, spec: ServerSpec): ServerSpec =>
  kind === "process"
    ? spec
    : {
        ...spec,
        allocations: {
          ...spec.allocations,
          default: { ...spec.allocations.default, ip: "0.0.0.0" }
        }
      }
