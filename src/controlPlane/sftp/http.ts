import { createHash } from "node:crypto"
import { Clock, Effect } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { applicationScopes } from "../../contract/api/middleware.ts"
import type { SshKey } from "../../contract/api/SftpGroup.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { Conflict, InvalidRequest, NotFound, Unauthorized } from "../../contract/domain/errors.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentPrincipal, lackingOf } from "../http/Principal.ts"
import { limitResponse } from "../http/rateLimit.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { millisOf } from "../keys/KeyCache.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { type KeyRecord, KeyRepo } from "../store/repos/KeyRepo.ts"
import { type SshKeyRecord, SshKeyRepo } from "../store/repos/SftpRepo.ts"
import { Store } from "../store/Store.ts"
import { SftpPasswords } from "./logins.ts"
import { loadSsh, type PublicKey, readPublicKey } from "./SftpHostKey.ts"
import { SftpListener } from "./SftpListener.ts"

const off = new Conflict({
  detail: "SFTP is off",
  hint: "Set MUSTER_SFTP_PORT and start the service again."
})

/** Handlers of `POST /api/servers/:server/sftp` (spec 10.6). */
export const SftpHandlers = handlersOf(
  ApplicationApi,
  "sftp",
  Effect.fn(function* (handlers) {
    const index = yield* ServerIndex
    const listener = yield* SftpListener
    const passwords = yield* SftpPasswords
    return handlers.handleAll({
      login: Effect.fnUntraced(
        function* ({ params: { server: username }, request }) {
          const caller = yield* CurrentPrincipal
          if (caller === undefined) return yield* new Unauthorized({ detail: "no API key was given" })
          if (index.get(username) === undefined) return yield* NotFound.server(username)
          const address = listener.addressFor(request)
          if (address === undefined) return yield* off
          return { ...address, username, ...(yield* passwords.issue(caller, username)) }
        },
        Effect.catchTag("LimitReached", limitResponse)
      )
    })
  })
)

/** SSH keys of one API key. */
const MOST = 16

const viewOf = ({ key_id: _, ...key }: SshKeyRecord): SshKey => key

/** Returns an id that needs no encoding in a path, as the fingerprint does. */
const idOf = (fingerprint: string): string =>
  `ssh_${createHash("sha256").update(fingerprint).digest("hex").slice(0, 24)}`

const noSuchKey = (id: string) =>
  new NotFound({ detail: `key not found: ${id}`, hint: "`muster keys list` shows what exists." })

/** Handlers of the routes of SSH keys (spec 10.6). */
export const SshKeysHandlers = handlersOf(
  ApplicationApi,
  "sshKeys",
  Effect.fn(function* (handlers) {
    const store = yield* Store
    const apiKeys = yield* ApiKeys
    const keys = yield* KeyRepo
    const repo = yield* SshKeyRepo

    const isValid = ({ expires_at, revoked_at }: KeyRecord, now: number) =>
      revoked_at === null && millisOf(expires_at) > now
    const known = Effect.fnUntraced(function* (id: string) {
      return (yield* keys.find(id)) ?? (yield* noSuchKey(id))
    })
    const valid = Effect.fnUntraced(function* (id: string, now: number) {
      const record = yield* known(id)
      if (isValid(record, now)) return record
      return yield* new Conflict({
        detail: `key ${id} is revoked or has expired`,
        hint: "Add the SSH key to a valid one: `muster keys list` shows which."
      })
    })

    /** Stores an SSH key. One that a valid API key has stays there: a login would not say which key is meant. */
    const put = Effect.fnUntraced(function* (key_id: string, key: PublicKey, created_at: string) {
      const now = yield* Clock.currentTimeMillis
      yield* valid(key_id, now)
      const other = yield* repo.find(key.fingerprint)
      const owner = other === undefined ? undefined : yield* keys.find(other.key_id)
      if (owner !== undefined && isValid(owner, now)) {
        return yield* new Conflict({
          detail: `the key ${owner.id} (${owner.name}) has this SSH key`,
          hint: "Remove it there first: `muster keys ssh remove`."
        })
      }
      if ((yield* repo.of(key_id)).length >= MOST) {
        return yield* new Conflict({
          detail: `the key has ${MOST} SSH keys`,
          hint: "Remove one first: `muster keys ssh remove`."
        })
      }
      const record = { ...key, id: idOf(key.fingerprint), key_id, created_at }
      yield* repo.put(record)
      return viewOf(record)
    })

    return handlers.handleAll({
      list: ({ params: { key } }) =>
        store.read(
          Effect.andThen(
            known(key),
            Effect.map(repo.of(key), (all) => all.map(viewOf))
          )
        ),
      add: Effect.fnUntraced(function* ({ params: { key: id }, payload: { public_key } }) {
        const read = readPublicKey(public_key, (yield* loadSsh).utils)
        if (typeof read === "string") {
          return yield* new InvalidRequest({
            detail: `body field public_key: ${read}`,
            hint: "Send the line of the file .pub that ssh-keygen has written, never the private key."
          })
        }
        yield* describeAudit({ changes: [read.fingerprint] })
        const holder = yield* apiKeys.holder(id)
        if (holder !== undefined && lackingOf(holder, "browse", applicationScopes) !== undefined) {
          return yield* new InvalidRequest({
            detail: `key ${id} reaches no files`,
            hint: "Use a key with browse or files: `muster keys create --allow browse`."
          })
        }
        return yield* store.write(put(id, read, yield* nowText))
      }),
      remove: Effect.fnUntraced(function* ({ params: { key, ssh } }) {
        yield* describeAudit({ changes: [ssh] })
        const removed = yield* store.write(Effect.andThen(known(key), repo.remove(key, ssh)))
        if (removed) return
        return yield* new NotFound({
          detail: `SSH key not found: ${ssh}`,
          hint: `\`muster keys ssh list ${key}\` shows what exists.`
        })
      })
    })
  })
)
