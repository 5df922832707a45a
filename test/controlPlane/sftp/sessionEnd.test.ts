import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { FailedLogins } from "../../../src/controlPlane/http/FailedLogins.ts"
import { type Principal, ServerAccess } from "../../../src/controlPlane/http/Principal.ts"
import { ApiKeys } from "../../../src/controlPlane/keys/ApiKeys.ts"
import { ServerIndex } from "../../../src/controlPlane/servers/list/ServerIndex.ts"
import { ServerManager } from "../../../src/controlPlane/servers/ServerManager.ts"
import { SftpLogins, SftpPasswords } from "../../../src/controlPlane/sftp/logins.ts"

const server_id = ServerId.make("srv")
const principal: Principal = { key_id: "key_1", name: "key", scope: "AppAdmin" }

// A login by id calls nothing else of the index.
const noServers = { all: () => [] } as unknown as ServerIndex["Service"]

/** One valid password for one server, and the API key that asked for it. */
const logins = SftpLogins.layer.pipe(
  Layer.provide([
    Layer.mock(ServerAccess, { mayRead: () => Effect.succeed(false) }),
    Layer.mock(FailedLogins, { isOver: () => Effect.succeed(false), count: () => Effect.succeed(undefined) }),
    Layer.succeed(ServerIndex, noServers),
    Layer.mock(ServerManager, { identify: () => Effect.succeed(server_id) }),
    Layer.mock(SftpPasswords, {
      holder: (text) => Effect.succeed(text === "sftp" ? { key_id: "key_1", server_id } : undefined)
    }),
    Layer.mock(ApiKeys, {
      verify: () => Effect.succeed(principal),
      holder: () => Effect.succeed(principal),
      ended: () => Effect.never
    })
  ])
)

describe("spec 10.6: the end of a session", () => {
  it.effect("a session of a password ends after 12 h, a session of a key does not", () =>
    Effect.gen(function* () {
      const { login } = yield* SftpLogins
      const sessionOf = (secret: string) =>
        login("srv", { kind: "secret", secret }, "127.0.0.1").pipe(
          Effect.flatMap(({ ends }) => ends),
          Effect.forkChild({ startImmediately: true })
        )
      const [password, key] = [yield* sessionOf("sftp"), yield* sessionOf("key")]
      yield* TestClock.adjust("719 minutes")
      assert.isUndefined(password.pollUnsafe())
      yield* TestClock.adjust("1 minute")
      yield* Fiber.join(password)
      yield* TestClock.adjust("30 days")
      assert.isUndefined(key.pollUnsafe())
    }).pipe(Effect.provide(logins))
  )
})
