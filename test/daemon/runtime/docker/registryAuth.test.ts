import { chmodSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { registryAuth, registryOf } from "../../../../src/daemon/runtime/docker/registryAuth.ts"
import { folder, put } from "./support.ts"

const base64 = (text: string) => Buffer.from(text).toString("base64")

/** Returns the credentials for an image, with this text as config file. */
const credentialsFor = Effect.fnUntraced(function* (image: string, config: unknown) {
  const path = join(yield* folder, "config.json")
  yield* put(path, typeof config === "string" ? config : JSON.stringify(config))
  const auth = yield* registryAuth(image, path)
  return auth === undefined ? undefined : Redacted.value(auth)
}, Effect.scoped)

/** A credential helper in the PATH of this process, while the scope is open. */
const helper = Effect.fnUntraced(function* (name: string, script: string) {
  const bin = yield* folder
  const path = join(bin, `docker-credential-${name}`)
  yield* put(path, `#!/bin/sh\n${script}\n`)
  chmodSync(path, 0o755)
  const before = process.env.PATH
  process.env.PATH = `${bin}:${before}`
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      process.env.PATH = before
    })
  )
})

describe("Docker runtime: credentials for registries", () => {
  it("the registry is the host of a reference, or Docker Hub", () => {
    const cases = {
      busybox: "docker.io",
      "library/busybox:1": "docker.io",
      "docker.io/library/busybox": "docker.io",
      "index.docker.io/library/busybox": "docker.io",
      "ghcr.io/a/b:1": "ghcr.io",
      "localhost/a": "localhost",
      "127.0.0.1:5000/a": "127.0.0.1:5000"
    }
    for (const [image, registry] of Object.entries(cases)) assert.strictEqual(registryOf(image), registry)
  })

  it.effect("an entry of the config file is found by any form of its key", () =>
    Effect.gen(function* () {
      const auth = base64("me:pass:word")
      const serveraddress = "https://index.docker.io/v1/"
      assert.deepStrictEqual(yield* credentialsFor("busybox", { auths: { [serveraddress]: { auth } } }), {
        serveraddress,
        username: "me",
        password: "pass:word"
      })
      assert.deepInclude(
        yield* credentialsFor("ghcr.io/a/b", { auths: { "https://ghcr.io": { identitytoken: "t" } } }),
        { identitytoken: "t" }
      )
      const plain = { username: "u", password: "p" }
      assert.deepInclude(yield* credentialsFor("ghcr.io/a/b", { auths: { "ghcr.io": plain } }), plain)
      assert.isUndefined(
        yield* credentialsFor("ghcr.io/a/b", { auths: { "ghcr.io.evil.example": { auth } } })
      )
      assert.isUndefined(yield* credentialsFor("ghcr.io/a/b", { auths: { "ghcr.io": {} } }))
      assert.isUndefined(yield* credentialsFor("ghcr.io/a/b", {}))
      assert.isUndefined(yield* registryAuth("busybox", "/nowhere/config.json"))
    })
  )

  it.effect("an invalid file is an error that contains none of its text", () =>
    Effect.gen(function* () {
      for (const config of ["{secret", { auths: { "ghcr.io": { auth: 7, password: "secret" } } }]) {
        const error = yield* Effect.flip(credentialsFor("ghcr.io/a", config))
        assert.match(error.message, /this is not a configuration of Docker's command line$/)
        assert.notInclude(error.message, "secret")
      }
      const incomplete = yield* Effect.flip(
        credentialsFor("ghcr.io/a", { auths: { "ghcr.io": { auth: base64("secret") } } })
      )
      assert.match(incomplete.message, /the entry of ghcr.io has no user and password$/)
    })
  )

  it.effect("credential helpers use Docker's protocol", () =>
    Effect.gen(function* () {
      yield* helper(
        "test",
        `read -r host; [ "$1" = get ] || exit 9
         case $host in
           ghcr.io) printf '{"ServerURL":"ghcr.io","Username":"u","Secret":"p"}' ;;
           token.example) printf '{"ServerURL":"x","Username":"<token>","Secret":"t"}' ;;
           broken.example) printf 'secret' ;;
           fails.example) printf 'secret'; exit 1 ;;
           *) echo "credentials not found in native keychain"; exit 1 ;;
         esac`
      )
      const store = { credsStore: "test" }
      assert.deepInclude(yield* credentialsFor("ghcr.io/a", store), { username: "u", password: "p" })
      assert.deepInclude(
        yield* credentialsFor("token.example/a", { credHelpers: { "token.example": "test" } }),
        {
          identitytoken: "t"
        }
      )
      assert.isUndefined(yield* credentialsFor("other.example/a", store))
      for (const host of ["broken.example", "fails.example"]) {
        const error = yield* Effect.flip(credentialsFor(`${host}/a`, store))
        assert.include(error.message, "docker-credential-test ")
        assert.notInclude(error.message, "secret")
      }
      const absent = yield* Effect.flip(credentialsFor("ghcr.io/a", { credsStore: "absent" }))
      assert.match(absent.message, /docker-credential-absent is not in the PATH of the daemon$/)
      const strange = yield* Effect.flip(credentialsFor("ghcr.io/a", { credsStore: "../x" }))
      assert.include(strange.message, "the name of its credential helper is invalid")
    }).pipe(Effect.scoped)
  )
})
