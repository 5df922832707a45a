/** Services with SFTP, and connections of ssh2's client to them. */
import { assert } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import ssh2, { type Client, type ConnectConfig, type SFTPWrapper } from "ssh2"
import type { Service } from "../../../support/Service.ts"
import { expectStatus } from "../../../support/servers.ts"
import { service } from "../../http/support/http.ts"

export const sftpService = () => service({ MUSTER_SFTP_PORT: "0" })

/** Returns the port of SFTP and the fingerprint, as the service logs them. */
export const sftpOf = ({ output }: Service) => {
  const match = /SFTP listens on [\d.]+:(\d+), its host key is (SHA256:[\w+/]+)/.exec(output())
  assert.isNotNull(match)
  return { port: Number(match?.[1]), fingerprint: match?.[2] ?? "" }
}

/** Connects until the scope ends. Fails with the message of a refused login. */
export const connect = (
  service: Service,
  username: string,
  password: string,
  more: ConnectConfig = {}
): Effect.Effect<Client, string, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<Client, string>((resume) => {
      const client = new ssh2.Client()
      // As OpenSSH does: without it, an answer to each small request is 40 ms late.
      client.on("ready", () => resume(Effect.succeed(client.setNoDelay(true))))
      client.on("error", ({ message }) => resume(Effect.fail(message)))
      client.on("close", () => resume(Effect.fail("closed")))
      client.connect({ host: "127.0.0.1", port: sftpOf(service).port, username, password, ...more })
    }),
    (client) => Effect.sync(() => client.end())
  )

/** Connects with an SSH key until the scope ends. Fails with the message of a refused login. */
export const connectWithKey = (service: Service, username: string, privateKey: string) =>
  connect(service, username, "", { privateKey })

/** Calls a function with a callback, and fails with the code and the text of the refusal. */
export const call = <A = unknown>(use: (done: (error: unknown, value?: A) => void) => void) =>
  Effect.callback<A, string>((resume) =>
    use((error, value) => {
      if (error === undefined || error === null) {
        // The callbacks of ssh2 have a value wherever `A` says so.
        return resume(Effect.succeed(value as A))
      }
      const code = error instanceof Error && "code" in error ? `${error.code} ` : ""
      resume(Effect.fail(`${code}${error instanceof Error ? error.message : String(error)}`))
    })
  )

export const openSftp = Effect.fnUntraced(function* (service: Service, username: string, password: string) {
  const client = yield* connect(service, username, password)
  return yield* call<SFTPWrapper>((done) => client.sftp(done))
})

/** Returns a key with these rights. */
export const keyWith = Effect.fnUntraced(function* (
  service: Service,
  body: Readonly<Record<string, unknown>>
) {
  const { json } = yield* expectStatus(service, 201, "POST", "/api/keys", {
    body: { name: "sftp", scope: "Operator", ...body }
  })
  return { id: String(json.id), key: String(json.key) }
})
