/** Where clients reach SFTP (spec 10.6). */
import { Context, Layer, Option } from "effect"
import type { HttpServerRequest } from "effect/http"
import type { SftpAddress } from "../../contract/api/SftpGroup.ts"
import { isLocalRequest } from "../http/node/localSocket.ts"
import type { HostKey } from "./SftpHostKey.ts"

/** Settings of SFTP. `announced`: the address of clients, if it is not the address of the request. */
export interface SftpSettings {
  readonly host: string
  readonly port: number
  readonly announced: Option.Option<{ readonly host: string; readonly port?: number }>
}

const isAnyAddress = (host: string) => host === "0.0.0.0" || host === "::"

/** Returns the host by which a request has reached the service; over the unix socket, the one that SFTP listens on. */
const hostOf = (request: HttpServerRequest.HttpServerRequest, bound: string): string => {
  const named = `http://${request.headers.host ?? ""}`
  if (isLocalRequest(request) || !URL.canParse(named)) return isAnyAddress(bound) ? "127.0.0.1" : bound
  return new URL(named).hostname.replace(/^\[(.*)\]$/, "$1")
}

/** The listener of this replica. */
export class SftpListener extends Context.Service<
  SftpListener,
  {
    /** Returns the address for the caller of a request; undefined if SFTP is off. */
    addressFor(request: HttpServerRequest.HttpServerRequest): SftpAddress | undefined
    /** Returns the address as a field of the system, if the request includes it. */
    included(
      query: { readonly include?: string },
      request: HttpServerRequest.HttpServerRequest
    ): { readonly sftp?: SftpAddress | null }
  }
>()("muster/sftp/SftpListener") {
  static readonly #of = (addressFor: SftpListener["Service"]["addressFor"]): SftpListener["Service"] => ({
    addressFor,
    included: ({ include = "" }, request) =>
      include.split(",").includes("sftp") ? { sftp: addressFor(request) ?? null } : {}
  })

  static readonly layerOff = Layer.succeed(
    SftpListener,
    SftpListener.#of(() => undefined)
  )

  /** @param settings.port the port that is bound */
  static readonly at = ({ announced, host, port }: SftpSettings, { fingerprint, host_key }: HostKey) =>
    SftpListener.#of((request) => ({
      host: Option.match(announced, { onNone: () => hostOf(request, host), onSome: (own) => own.host }),
      port: Option.match(announced, { onNone: () => port, onSome: (own) => own.port ?? port }),
      fingerprint,
      host_key
    }))
}
