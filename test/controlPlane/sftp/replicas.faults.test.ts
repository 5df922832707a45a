import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import ssh2 from "ssh2"
import { definitions } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { nodeIs, startNode } from "../../support/nodes.ts"
import { replicaSet } from "../../support/replicaSet.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { games } from "../http/support/http.ts"
import { call, connect, connectWithKey, keyWith, sftpOf } from "./support/sftp.ts"

describe("spec 10.6: another replica", () => {
  it.live(
    "has the same host key, accepts passwords and SSH keys of the first, and ends them with their key",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(games)
        const set = yield* replicaSet({ ...env, MUSTER_SFTP_PORT: "0" })
        const [first, other] = [yield* set.start(), yield* set.start()]
        const { key } = yield* set.key("n1", "Node")
        yield* startNode({ control: first.url, key, id: "n1" })
        for (const api of [first, other]) yield* nodeIs(api, "n1", true)
        assert.strictEqual(sftpOf(first).fingerprint, sftpOf(other).fingerprint)
        const id = yield* installed(first, "kept")
        const holder = yield* keyWith(first, { allow: ["files"] })
        const login = yield* expectStatus(first, 201, "POST", `/api/servers/${id}/sftp`, {
          headers: { authorization: `Bearer ${holder.key}` }
        })
        const pair = ssh2.utils.generateKeyPairSync("ed25519")
        yield* expectStatus(first, 201, "POST", `/api/keys/${holder.id}/ssh`, {
          body: { public_key: pair.public }
        })
        const clients = [
          yield* connect(other, id, login.json.password),
          yield* connectWithKey(other, id, pair.private),
          yield* connect(other, id, holder.key)
        ]
        let open = clients.length
        for (const client of clients) {
          const sftp = yield* call<ssh2.SFTPWrapper>((done) => client.sftp(done))
          yield* call((done) => sftp.writeFile("/a", "a", done))
          client.on("close", () => {
            open -= 1
          })
        }
        yield* expectStatus(first, 200, "DELETE", `/api/keys/${holder.id}`)
        yield* eventually(
          () => open,
          (count) => count === 0
        )
        assert.match(
          yield* Effect.flip(connect(other, id, login.json.password)),
          /authentication methods failed/
        )
        assert.match(
          yield* Effect.flip(connectWithKey(other, id, pair.private)),
          /authentication methods failed/
        )
      }).pipe(Effect.scoped),
    60_000
  )
})
