import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import ssh2 from "ssh2"
import { generateHostKey } from "../../../src/controlPlane/sftp/SftpHostKey.ts"

describe("spec 10.6: the host key", () => {
  it.effect("each key that is made can be read", () =>
    Effect.gen(function* () {
      for (let count = 0; count < 2000; count += 1)
        assert.notInstanceOf(ssh2.utils.parseKey(yield* generateHostKey), Error)
    })
  )
})
