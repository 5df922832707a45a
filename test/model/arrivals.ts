/** The target side of a migration at a simulated node: it fetches the files of arriving servers. */
import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { requestTo } from "../support/Service.ts"
import type { SimulatedNode } from "../support/SimulatedNode.ts"

const PAUSE = "100 millis"

/** Fetches until the scope closes; a failed fetch is retried. */
export const arrivals = Effect.fnUntraced(function* (options: {
  readonly node: SimulatedNode
  readonly key: string
  readonly control: ReadonlyArray<string>
  /** Whether the node runs and is reachable. */
  readonly isThere: () => boolean
}) {
  const { control, isThere, key, node } = options
  const { brain } = node
  let turn = 0
  const fetch = Effect.fnUntraced(function* (server: ServerId) {
    const url = control[turn++ % control.length] ?? ""
    const answer = yield* requestTo(url, key)(
      "GET",
      `/api/nodes/${node.id}/internal/servers/${server}/files`
    ).pipe(Effect.timeout("5 seconds"))
    if (answer.status !== 200 || !isThere() || !brain.arriving.delete(server)) return
    brain.files.set(server, answer.text)
    brain.finishInstall(server, "ready")
  })
  const readSnapshot = Effect.suspend(() =>
    Effect.forEach(isThere() ? [...brain.arriving] : [], (server) => Effect.ignore(fetch(server)), {
      concurrency: 4,
      discard: true
    })
  )
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(readSnapshot, Effect.sleep(PAUSE))))
})
