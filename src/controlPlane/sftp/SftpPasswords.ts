/** Passwords that open the files of one server over SFTP for a while, with the rights of the key that asked (spec 10.6). */
import { randomBytes } from "node:crypto"
import { Context, DateTime, Effect, Layer } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { Principal } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"
import { hashKey } from "../keys/keyFormat.ts"
import { SftpRepo } from "../store/repos/SftpRepo.ts"
import { Store } from "../store/Store.ts"

const form = /^sftp_[\w-]{32}$/

const limits = { lifetime: 15 * 60_000, most: 10_000, mostOfKey: 100 }

/** Passwords of any replica; the database has their hashes only. */
export class SftpPasswords extends Context.Service<SftpPasswords>()("muster/sftp/SftpPasswords", {
  make: Effect.gen(function* () {
    const repo = yield* SftpRepo
    const store = yield* Store
    return {
      /** @error LimitReached the bound of unexpired passwords is reached, of this key or in total */
      issue: Effect.fn("SftpPasswords.issue")(function* ({ key_id }: Principal, server_id: ServerId) {
        const password = yield* Effect.sync(() => `sftp_${randomBytes(24).toString("base64url")}`)
        const stored = yield* store.write(
          repo.insertPassword(hashKey(password), { key_id, server_id }, limits)
        )
        if (typeof stored !== "string")
          return { password, expires_at: DateTime.formatIso(DateTime.makeUnsafe(stored)) }
        const limit = limits[stored]
        return yield* new LimitReached({
          detail: `${limit} passwords for SFTP${stored === "most" ? "" : " of this key"} have not expired`,
          hint: `Use them, or wait: a password expires after ${limits.lifetime / 60_000} minutes.`,
          limit,
          resetAfter: limits.lifetime
        })
      }),
      /** Returns the holder of a password, if it is valid; nothing for any other text. */
      holder: (password: string) =>
        form.test(password) ? store.read(repo.holder(hashKey(password))) : Effect.undefined
    }
  })
}) {
  static readonly layer = Layer.effect(SftpPasswords, SftpPasswords.make)
}
