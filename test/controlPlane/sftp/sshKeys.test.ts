import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import ssh2 from "ssh2"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { assertError } from "../http/support/http.ts"
import { keyed } from "../http/support/keyed.ts"
import { call, connectWithKey, sftpService } from "./support/sftp.ts"

const { generateKeyPairSync } = ssh2.utils

const kinds = {
  ed25519: () => generateKeyPairSync("ed25519", { comment: "alice@home" }),
  ecdsa: () => generateKeyPairSync("ecdsa", { bits: 256 }),
  rsa: () => generateKeyPairSync("rsa", { bits: 2048 })
}

const added = Effect.fnUntraced(function* (key_id: string, public_key: string) {
  const muster = yield* Muster
  const { json } = yield* expectStatus(muster, 201, "POST", `/api/keys/${key_id}/ssh`, {
    body: { public_key }
  })
  return json
})

layer(sftpService(), { excludeTestServices: true, timeout: "60 seconds" })("SSH keys", (it) => {
  describe("spec 10.6: SSH keys", () => {
    it.effect("ed25519, ecdsa and rsa log in with the rights of the API key", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const key = yield* keyed("Operator", { allow: ["browse"], servers: [id] })
        for (const make of Object.values(kinds)) {
          const pair = make()
          yield* added(key.id, pair.public)
          const client = yield* connectWithKey(muster, id, pair.private)
          const sftp = yield* call<ssh2.SFTPWrapper>((done) => client.sftp(done))
          assert.match(String(yield* call((done) => sftp.readFile("/server.sh", done))), /ready/)
          assert.match(yield* Effect.flip(call((done) => sftp.mkdir("/a", done))), /^3 .*files/)
        }
        const { json } = yield* expectStatus(muster, 200, "GET", `/api/keys/${key.id}/ssh`)
        assert.deepStrictEqual(
          json.map(({ comment, type }: Record<string, string>) => `${type} ${comment}`.trim()),
          ["ssh-ed25519 alice@home", "ecdsa-sha2-nistp256", "ssh-rsa"]
        )
        const { json: audit } = yield* expectStatus(muster, 200, "GET", `/api/audit?object=${key.id}`)
        assert.deepInclude(audit[0], { action: "key.ssh.add", changes: [json[2].fingerprint] })
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a removed SSH key and a revoked API key log in no more, and end sessions within a second",
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const id = yield* installed(muster, "kept")
          for (const end of ["ssh", "key"]) {
            const key = yield* keyed("Operator", { allow: ["files"] })
            const pair = kinds.ed25519()
            const { id: ssh } = yield* added(key.id, pair.public)
            const client = yield* connectWithKey(muster, id, pair.private)
            let isClosed = false
            client.on("close", () => {
              isClosed = true
            })
            yield* expectStatus(
              muster,
              200,
              "DELETE",
              end === "ssh" ? `/api/keys/${key.id}/ssh/${ssh}` : `/api/keys/${key.id}`
            )
            yield* eventually(
              () => isClosed,
              (closed) => closed
            )
            const refused = yield* Effect.flip(connectWithKey(muster, id, pair.private))
            assert.match(refused, /authentication methods failed/)
          }
        }).pipe(Effect.scoped)
    )

    it.effect("another key with the public part of an SSH key does not log in", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const key = yield* keyed("Operator", { allow: ["files"] })
        yield* added(key.id, kinds.ed25519().public)
        const stranger = kinds.ed25519()
        assert.match(
          yield* Effect.flip(connectWithKey(muster, id, stranger.private)),
          /authentication methods failed/
        )
      }).pipe(Effect.scoped)
    )

    it.effect("an SSH key is of one valid API key, and an API key has at most 16", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const [one, other] = [
          yield* keyed("Operator", { allow: ["files"] }),
          yield* keyed("Operator", { allow: ["files"] })
        ]
        const { public: public_key } = kinds.ed25519()
        const add = (id: string, key: string) =>
          muster.request("POST", `/api/keys/${id}/ssh`, { body: { public_key: key } })
        yield* added(one.id, public_key)
        assertError(yield* add(other.id, public_key), 409, new RegExp(one.id))
        yield* expectStatus(muster, 200, "DELETE", `/api/keys/${one.id}`)
        yield* added(other.id, public_key)
        assertError(yield* add(one.id, kinds.ed25519().public), 409, /revoked/)
        for (let count = 1; count < 16; count += 1) yield* added(other.id, kinds.ed25519().public)
        assertError(yield* add(other.id, kinds.ed25519().public), 409, "the key has 16 SSH keys")
      })
    )

    it.effect(
      "short RSA keys, private keys and other texts are 422, and an API key without browse, too",
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const key = yield* keyed("Operator", { allow: ["files"] })
          const pair = kinds.ed25519()
          for (const [public_key, why] of [
            [generateKeyPairSync("rsa", { bits: 1024 }).public, /at least 2048 bits, got 1024/],
            [pair.private, /expected one line/],
            [`command="id" ${pair.public}`, /without options/],
            [pair.public.replace("ssh-ed25519", "ssh-rsa"), /of the type ssh-rsa/],
            ["ssh-ed25519 AAAA", /of the type ssh-ed25519/],
            ["", /expected one line/]
          ] as const) {
            const refused = yield* muster.request("POST", `/api/keys/${key.id}/ssh`, { body: { public_key } })
            const { detail } = assertError(refused, 422, why)
            assert.notInclude(detail, "PRIVATE")
          }
          const blind = yield* keyed("Operator", { allow: ["power"] })
          const body = { public_key: pair.public }
          assertError(yield* muster.request("POST", `/api/keys/${blind.id}/ssh`, { body }), 422, /no files/)
          assertError(yield* muster.request("POST", "/api/keys/key_x/ssh", { body }), 404, /key_x/)
          assertError(yield* key.request("POST", `/api/keys/${key.id}/ssh`, { body }), 403)
        })
    )
  })
})
