import { Effect } from "effect"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Transaction } from "../../store/Store.ts"

/** There is reason to think that its node has lost a server: whoever does the duties asks the node. Part of a write. */
export const makeMarkForVerification = Effect.map(ServerRepo, (servers) =>
  Effect.fnUntraced(function* (server_id: string) {
    if (!(yield* servers.setSuspected(server_id, true))) return
    const transaction = yield* Transaction
    yield* transaction.append({ topic: "server:suspect", server_id, payload: null }, "")
  })
)
