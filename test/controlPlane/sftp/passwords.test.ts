import { assert, describe, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { SftpLogin } from "../../../src/contract/api/SftpGroup.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { assertError, service } from "../http/support/http.ts"
import { keyed } from "../http/support/keyed.ts"
import { call, connect, openSftp, sftpOf, sftpService } from "./support/sftp.ts"

const options = { excludeTestServices: true, timeout: "60 seconds" } as const

const decodeLogin = Schema.decodeUnknownEffect(SftpLogin)

const loginOf = Effect.fnUntraced(function* (api: Pick<Muster["Service"], "request">, id: string) {
  const { json } = yield* expectStatus(api, 201, "POST", `/api/servers/${id}/sftp`)
  return yield* decodeLogin(json)
})

layer(sftpService(), options)("passwords of SFTP", (it) => {
  describe("spec 10.6: passwords", () => {
    it.effect("a password opens the files of its server alone, with the rights and folders of the key", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept", { name: "hall" })
        const other = yield* installed(muster, "kept")
        const admin = yield* openSftp(muster, id, muster.key)
        yield* call((done) => admin.mkdir("/plugins", done))
        const key = yield* keyed("Operator", { allow: ["browse"], paths: ["/plugins"] })
        const { expires_at, password, ...login } = yield* loginOf(key, id)
        const { fingerprint, port } = sftpOf(muster)
        assert.deepInclude(login, { host: "127.0.0.1", port, fingerprint, username: id })
        assert.approximately(Date.parse(expires_at) - Date.now(), 15 * 60_000, 30_000)
        for (const name of [id, "hall"]) {
          const sftp = yield* openSftp(muster, name, password)
          assert.match(yield* Effect.flip(call((done) => sftp.readFile("/server.sh", done))), /^3 /)
          assert.match(yield* Effect.flip(call((done) => sftp.mkdir("/plugins/a", done))), /^3 .*files/)
        }
        for (const name of [other, "all"])
          assert.match(yield* Effect.flip(connect(muster, name, password)), /authentication methods failed/)
        const { json } = yield* expectStatus(muster, 200, "GET", `/api/audit?object=${id}&action=sftp.login`)
        assert.deepInclude(json[0], { action: "sftp.login", result: { status: 201 } })
      }).pipe(Effect.scoped)
    )

    it.effect("a password ends with its key, within a second, as do its connections", () =>
      Effect.gen(function* () {
        const muster = yield* Muster
        const id = yield* installed(muster, "kept")
        const key = yield* keyed("Operator", { allow: ["files"] })
        const { password } = yield* loginOf(key, id)
        const client = yield* connect(muster, id, password)
        let isClosed = false
        client.on("close", () => {
          isClosed = true
        })
        yield* expectStatus(muster, 200, "DELETE", `/api/keys/${key.id}`)
        yield* eventually(
          () => isClosed,
          (closed) => closed
        )
        assert.match(yield* Effect.flip(connect(muster, id, password)), /authentication methods failed/)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a key without browse gets none, a key none of a server that it may not read, and at most 100",
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const [id, other] = [yield* installed(muster, "kept"), yield* installed(muster, "kept")]
          const route = `/api/servers/${id}/sftp`
          assertError(
            yield* (yield* keyed("Operator", { allow: ["power"] })).request("POST", route),
            403,
            /lacks: browse/
          )
          const key = yield* keyed("Operator", { allow: ["browse"], servers: [id] })
          assertError(yield* key.request("POST", `/api/servers/${other}/sftp`), 404)
          for (let count = 0; count < 100; count += 1) yield* loginOf(key, id)
          const refused = yield* key.request("POST", route)
          assertError(refused, 429, "100 passwords for SFTP of this key have not expired")
          assert.isAbove(Number(refused.headers.get("retry-after")), 60)
          yield* loginOf(muster, id)
        })
    )

    it.effect(
      "GET /api/system?include=sftp has the address by which the request came, and the host key",
      () =>
        Effect.gen(function* () {
          const muster = yield* Muster
          const { json } = yield* expectStatus(muster, 200, "GET", "/api/system?include=sftp")
          assert.deepInclude(json.sftp, { host: "127.0.0.1", ...sftpOf(muster) })
          assert.match(json.sftp.host_key, /^ssh-ed25519 AAAA/)
          const { json: plain } = yield* expectStatus(muster, 200, "GET", "/api/system")
          assert.notProperty(plain, "sftp")
        })
    )
  })
})

layer(service(), options)("passwords without SFTP", (it) => {
  it.effect("spec 10.6: without MUSTER_SFTP_PORT, a password is 409, and the system has no SFTP", () =>
    Effect.gen(function* () {
      const muster = yield* Muster
      const id = yield* installed(muster, "kept")
      assertError(yield* muster.request("POST", `/api/servers/${id}/sftp`), 409, "SFTP is off")
      const { json } = yield* expectStatus(muster, 200, "GET", "/api/system?include=sftp")
      assert.isNull(json.sftp)
    })
  )
})

const mapped = service({ MUSTER_SFTP_PORT: "0", MUSTER_SFTP_ADDRESS: "sftp.example.com:22" })
layer(mapped, options)("passwords behind a port mapping", (it) => {
  it.effect("spec 10.6: MUSTER_SFTP_ADDRESS is the address of users", () =>
    Effect.gen(function* () {
      const muster = yield* Muster
      const id = yield* installed(muster, "kept")
      const { host, port } = yield* loginOf(muster, id)
      assert.deepStrictEqual([host, port], ["sftp.example.com", 22])
    })
  )
})
