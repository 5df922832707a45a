import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, NotFound, TooManyRequests } from "../domain/errors.ts"
import { ServerId } from "../domain/Id.ts"
import { TimeText } from "../domain/nowText.ts"
import { Authorization, ReadableServers } from "./middleware.ts"
import { route } from "./routePolicy.ts"

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
