import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, TooManyRequests } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import { TimeText } from "../domain/nowText.ts"
import { del, get, post } from "./endpoint.ts"
import { Authorization, Policy, ReadableServers } from "./middleware.ts"

const addressFields = {
  host: Schema.String,
  port: Schema.Int,
  /** The fingerprint of the host key as OpenSSH shows it: `SHA256:...`. */
  fingerprint: Schema.String,
  /** The host key as a line of `known_hosts` has it, without the name of the host: `ssh-ed25519 AAAA...`. */
  host_key: Schema.String
} as const

export const SftpAddress = Schema.Struct(addressFields).annotate({ identifier: "SftpAddress" })
export type SftpAddress = typeof SftpAddress.Type

/** A password for one server, which is shown only here. */
export const SftpLogin = Schema.Struct({
  ...addressFields,
  username: ServerId,
  password: Schema.String,
  /** Until when the password opens connections. */
  expires_at: TimeText
}).annotate({ identifier: "SftpLogin" })
export type SftpLogin = typeof SftpLogin.Type

/** Passwords for SFTP (spec 10.6). */
export class SftpGroup extends HttpApiGroup.make("sftp")
  .add(
    post(
      "login",
      "/servers/:server/sftp",
      "A password for SFTP, with which the files of one server can be reached for 15 minutes",
      {
        right: "browse",
        audited: "sftp.login",
        success: SftpLogin.pipe(HttpApiSchema.status(201)),
        errors: [Conflict, TooManyRequests]
      }
    )
  )
  .middleware(ReadableServers)
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "SFTP" })) {}

/** An SSH key of an API key (spec 10.6). */
export const SshKey = Schema.Struct({
  id: Schema.String,
  /** As OpenSSH shows it: `SHA256:...`. */
  fingerprint: Schema.String,
  type: Schema.String,
  comment: Schema.String,
  created_at: TimeText
}).annotate({ identifier: "SshKey" })
export type SshKey = typeof SshKey.Type

const LONGEST_PUBLIC_KEY = 8192

export const AddSshKey = Schema.Struct({
  public_key: Schema.String.check(Schema.isMaxLength(LONGEST_PUBLIC_KEY)).annotate({
    description: "The line of a file `.pub`: `ssh-ed25519 AAAA... comment`."
  })
}).annotate({ identifier: "AddSshKey" })

/** SSH keys, with which clients of SFTP log in as an API key (spec 10.6). */
export class SshKeysGroup extends HttpApiGroup.make("sshKeys")
  .add(
    get("list", "/keys/:key/ssh", "List the SSH keys of a key", { success: Schema.Array(SshKey) }),
    post("add", "/keys/:key/ssh", "Add an SSH key, which logs in over SFTP", {
      audited: "key.ssh.add",
      payload: AddSshKey,
      success: SshKey.pipe(HttpApiSchema.status(201)),
      errors: [Conflict]
    }),
    del("remove", "/keys/:key/ssh/:ssh", "Remove an SSH key, at once", {
      audited: "key.ssh.remove",
      success: HttpApiSchema.Empty(200)
    })
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "SSH keys" })) {}
