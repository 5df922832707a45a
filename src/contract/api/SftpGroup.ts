import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, InvalidRequest, NotFound, TooManyRequests } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import { TimeText } from "../domain/nowText.ts"
import { Authorization, Policy, ReadableServers, route } from "./middleware.ts"

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
    HttpApiEndpoint.post("login", "/servers/:server/sftp", {
      params: { server: ServerId.annotate({ description: "The id of the server." }) },
      success: SftpLogin.pipe(HttpApiSchema.status(201)),
      error: [NotFound, Conflict, TooManyRequests]
    }).annotateMerge(
      route("A password for SFTP, with which the files of one server can be reached for 15 minutes", {
        right: "browse",
        audited: "sftp.login"
      })
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

const key = { key: Schema.String.annotate({ description: "The id of the API key." }) }

/** SSH keys, with which clients of SFTP log in as an API key (spec 10.6). */
export class SshKeysGroup extends HttpApiGroup.make("sshKeys")
  .add(
    HttpApiEndpoint.get("list", "/keys/:key/ssh", {
      params: key,
      success: Schema.Array(SshKey),
      error: NotFound
    }).annotateMerge(route("List the SSH keys of a key")),
    HttpApiEndpoint.post("add", "/keys/:key/ssh", {
      params: key,
      payload: AddSshKey,
      success: SshKey.pipe(HttpApiSchema.status(201)),
      error: [NotFound, Conflict, InvalidRequest]
    }).annotateMerge(route("Add an SSH key, which logs in over SFTP", { audited: "key.ssh.add" })),
    HttpApiEndpoint.delete("remove", "/keys/:key/ssh/:ssh", {
      params: { ...key, ssh: Schema.String.annotate({ description: "The id of the SSH key." }) },
      success: HttpApiSchema.Empty(200),
      error: NotFound
    }).annotateMerge(route("Remove an SSH key, at once", { audited: "key.ssh.remove" }))
  )
  .middleware(Authorization)
  .annotate(Policy, { answersEarly: true })
  .annotateMerge(OpenApi.annotations({ title: "SSH keys" })) {}
